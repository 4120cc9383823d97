// The colours of the pictures, by light and by dark. No meaning hangs on a colour alone: whatever it
// says, a shape and a word say too. The hues are those that Okabe and Ito chose to be told apart
// without full colour vision; what is accepted is greenish blue, what is refused reddish orange.

export const palettes = {
  light: {
    panel: '#ffffff',
    edge: '#d5dbe3',
    lane: '#f4f6f9',
    ink: '#1c2530',
    muted: '#566270',
    hatch: '#8893a1',
    value: '#e3e8ef',
    sign: '#ffffff',
    accepted: '#00795c',
    refused: '#c2410c',
    workers: ['#1f6fb5', '#9a4f8f', '#96700a', '#4a5a9e'],
  },
  dark: {
    panel: '#12171f',
    edge: '#2b3440',
    lane: '#1a212b',
    ink: '#e8edf3',
    muted: '#9aa7b6',
    hatch: '#66727f',
    value: '#2b3542',
    sign: '#10151c',
    accepted: '#3fc79b',
    refused: '#ff8f5e',
    workers: ['#6db3f2', '#d792c8', '#d9b24c', '#9aa9ea'],
  },
};

/** For the picture by itself. */
export function style(): string {
  return `${SHAPES}${colours('light')}@media (prefers-color-scheme:dark){${colours('dark')}}`;
}

const SHAPES = [
  'text{white-space:pre}',
  '.bold{font-weight:600}.italic{font-style:italic}',
  '.line{fill:none;stroke-width:1.8}.read{stroke-width:1}.read.line{stroke-dasharray:1.5 3}',
  '.back{stroke-width:1.6;stroke-dasharray:4 2.5}.lost.line{stroke-dasharray:4 3}',
  '.casing{fill:none;stroke-width:5}.sign{fill:none;stroke-width:2;stroke-linecap:round;',
  'stroke-linejoin:round}.wait{fill:none;stroke-width:1.4;stroke-dasharray:1.5 4}',
  '.sure{stroke-width:1.4}.belief{stroke-width:1.2;stroke-dasharray:4 3}',
  '.fault{fill:url(#hatch);opacity:.6}.fault-edge{fill:none;stroke-dasharray:2 2}',
  '.halo{paint-order:stroke;stroke-width:5;stroke-linejoin:round}',
].join('');

function colours(scheme: keyof typeof palettes): string {
  const of = palettes[scheme];
  return [
    `text{fill:${of.muted}}.ink{fill:${of.ink}}`,
    `.panel,.cut{fill:${of.panel};stroke:${of.edge}}.lane,.belief{fill:${of.lane}}`,
    `.hatch,.fault-edge{stroke:${of.hatch}}.axis{stroke:${of.muted}}.casing{stroke:${of.lane}}`,
    `.halo{stroke:${of.lane}}.value{fill:${of.value}}.sign{stroke:${of.sign}}`,
    ...of.workers.map(
      (hue, index) =>
        `.hue${index}{stroke:${hue}}.hue${index}.sure{fill:${hue};fill-opacity:.24}.name${index}{fill:${hue}}`,
    ),
    `.nobody{stroke:${of.muted}}.nobody.sure{fill:${of.muted};fill-opacity:.24}`,
    ...(['accepted', 'refused'] as const).map(
      (kind) => `.line.${kind}{stroke:${of[kind]}}.solid.${kind},text.${kind}{fill:${of[kind]}}`,
    ),
    `.lost.line,.answered.line{stroke:${of.muted}}.lost.solid,.answered.solid{fill:${of.muted}}`,
  ].join('');
}
