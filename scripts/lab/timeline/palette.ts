// The colours of the pictures, and all that their shapes refer to by name. No meaning hangs on a
// colour alone: whatever it says, a shape and a word say too. The hues are those that Okabe and Ito
// chose to be told apart without full colour vision; what is accepted is greenish blue, what is
// refused reddish orange. Damage is red, and the heaviest there is.

type Scheme = 0 | 1;

/** By light and by dark. */
const COLOURS = {
  panel: ['#ffffff', '#12171f'],
  edge: ['#d5dbe3', '#2b3440'],
  lane: ['#f4f6f9', '#1a212b'],
  ink: ['#1c2530', '#e8edf3'],
  muted: ['#566270', '#9aa7b6'],
  hatch: ['#8893a1', '#66727f'],
  value: ['#e3e8ef', '#2b3542'],
  sign: ['#ffffff', '#10151c'],
  accepted: ['#00795c', '#3fc79b'],
  refused: ['#c2410c', '#ff8f5e'],
  damage: ['#b3002d', '#ff5c77'],
} as const;

const WORKERS = [
  ['#1f6fb5', '#6db3f2'],
  ['#9a4f8f', '#d792c8'],
  ['#96700a', '#d9b24c'],
  ['#4a5a9e', '#9aa9ea'],
] as const;

/** How many workers have a colour of their own. */
export const HUES = WORKERS.length;

/** To be put into a picture once, before its shapes. */
export function paint(): string {
  return [
    `<style>${SHAPES}${colours(0)}@media (prefers-color-scheme:dark){${colours(1)}}</style><defs>`,
    '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" ' +
      'patternTransform="rotate(45)"><path class="hatch" d="M0 0V7"/></pattern>',
    ...['accepted', 'stale', 'refused', 'answered'].map(
      (head) =>
        `<marker id="${head}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" ` +
        'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">' +
        `<path class="${head} solid" d="M0 .5L8 4L0 7.5Z"/></marker>`,
    ),
    '</defs>',
  ].join('');
}

const SHAPES = [
  'text{white-space:pre}.bold{font-weight:600}.italic{font-style:italic}',
  '.line{fill:none;stroke-width:1.8}.read{stroke-width:1}.read.line{stroke-dasharray:1.5 3}',
  '.stale.line{stroke-width:3.4}.damage{stroke-width:2.2}',
  '.back{stroke-width:1.6;stroke-dasharray:4 2.5}.lost.line{stroke-dasharray:4 3}',
  '.casing{fill:none;stroke-width:5}.sign{fill:none;stroke-width:2;stroke-linecap:round;',
  'stroke-linejoin:round}.wait{fill:none;stroke-width:1.4;stroke-dasharray:1.5 4}',
  '.sure{stroke-width:1.4}.belief{stroke-width:1.2;stroke-dasharray:4 3}',
  '.fault{fill:url(#hatch);opacity:.6}.fault-edge{fill:none;stroke-dasharray:2 2}',
  '.halo{paint-order:stroke;stroke-width:5;stroke-linejoin:round}',
].join('');

function colours(scheme: Scheme): string {
  const of = (name: keyof typeof COLOURS) => COLOURS[name][scheme];
  const sure = (hue: string) => `stroke:${hue};fill:${hue};fill-opacity:.24`;
  return [
    `text{fill:${of('muted')}}.ink{fill:${of('ink')}}.lane,.belief{fill:${of('lane')}}`,
    `.panel{fill:${of('panel')};stroke:${of('edge')}}.cut{fill:${of('panel')}}`,
    `.hatch,.fault-edge{stroke:${of('hatch')}}.axis,.nobody{stroke:${of('muted')}}`,
    `.casing,.halo{stroke:${of('lane')}}.value{fill:${of('value')}}.sign{stroke:${of('sign')}}`,
    ...WORKERS.map(({ [scheme]: hue }, index) => {
      return `.hue${index}{stroke:${hue}}.hue${index}.sure{${sure(hue)}}.name${index}{fill:${hue}}`;
    }),
    `.nobody.sure{${sure(of('muted'))}}`,
    ...(['accepted', 'refused', 'stale'] as const).map((fate) => {
      const colour = of(fate === 'stale' ? 'damage' : fate);
      return `.line.${fate}{stroke:${colour}}.solid.${fate},text.${fate}{fill:${colour}}`;
    }),
    `.damage{stroke:${of('damage')};fill:${of('damage')};fill-opacity:.16}`,
    `.lost.line,.answered.line{stroke:${of('muted')}}.lost.solid,.answered.solid{fill:${of('muted')}}`,
  ].join('');
}
