// The page's live part: follows the events of feed.ts and shows them. Whatever came from the wire is
// set as text and never as HTML, what would steer the text (control and bidi characters) is spelled
// out, and a token, which has 64 bits, stays a string or a BigInt.

const element = (id) => document.getElementById(id);

/** Milliseconds before another try when the browser gives up, as it does on an error status. */
const RETRY = 2000;
/** Milliseconds without a sign of life, which comes every 15 s, after which nobody is there. */
const SILENCE = 35_000;
const SHOWN = 100;

/** A word and a sign for each result, so that nothing hangs on the colour. */
const SIGNS = { accepted: '✓', refused: '✕', 'not found': '∅', failed: '!', invalid: '!' };

const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
  hourCycle: 'h23',
});

/** The rows of the keys, each with the JSON that it shows; undefined before the first listing. */
let rows;

element('curl').textContent =
  `curl -d '{"op":"write","key":"greeting","val":"hello","version":1}' ${location.origin}/`;
connect();

function connect() {
  const events = new EventSource('/events');
  let watchdog;
  const again = (delay) => {
    clearTimeout(watchdog);
    events.close();
    showState('reconnecting');
    setTimeout(connect, delay);
  };
  const on = (name, show) =>
    events.addEventListener(name, ({ data }) => {
      clearTimeout(watchdog);
      watchdog = setTimeout(again, SILENCE, 0);
      showState('live');
      show(data && JSON.parse(data));
    });
  on('snapshot', showSnapshot);
  on('decisions', showDecisions);
  on('keys', showKeys);
  on('beat', () => {});
  events.addEventListener('error', () => {
    if (events.readyState === EventSource.CLOSED) again(RETRY);
    else showState('reconnecting');
  });
}

function showState(state) {
  if (element('state').dataset.state === state) return;
  element('state').dataset.state = state;
  element('state').textContent = state;
}

function showSnapshot({ about, decisions, counts }) {
  // What comes next may be another storage, with other keys: none of them is a change.
  rows = undefined;
  element('rule').textContent = about.rule;
  element('accepts').textContent = about.accepts ?? '';
  if (about.client) element('client').textContent = about.client;
  element('decisions').replaceChildren(...decisions.map(decisionItem).reverse());
  showCounts(counts);
}

function showDecisions({ decisions, counts }) {
  const list = element('decisions');
  const items = decisions.map(decisionItem).reverse();
  for (const item of items) item.classList.add('new');
  list.prepend(...items);
  while (list.children.length > SHOWN) list.lastChild.remove();
  for (const { key, result } of decisions) if (result === 'refused') flash(rows?.get(key), 'held');
  showCounts(counts);
}

function showCounts(counts) {
  const seen = Object.entries(counts).filter(([, count]) => count > 0);
  element('counts').replaceChildren(
    ...seen.map(([result, count]) => {
      const item = document.createElement('li');
      item.dataset.result = result;
      item.textContent = `${SIGNS[result]} ${count.toLocaleString()} ${result}`;
      return item;
    }),
  );
  element('no-decisions').hidden = seen.length > 0;
}

function decisionItem({ at, op, key, token, result, reason }) {
  const { item, part } = fromTemplate('decision');
  const time = new Date(at);
  item.dataset.result = result;
  part('.result').textContent = `${SIGNS[result]} ${result}`;
  part('time').textContent = clock.format(time);
  part('time').dateTime = time.toISOString();
  part('time').title = time.toLocaleString();
  if (op) {
    part('.op').textContent = op;
    part('.key').append(visible(key));
    showToken(part, token);
  } else {
    part('.what').replaceChildren();
    part('.tokens').replaceChildren();
  }
  part('.reason').append(reason && visible(reason));
  return item;
}

function showKeys({ entries, more, unavailable }) {
  element('unavailable').hidden = unavailable === undefined;
  element('unavailable').textContent =
    unavailable && `Not up to date, the store is unavailable: ${unavailable}`;
  if (unavailable !== undefined) return;
  element('more').hidden = !more;
  element('more').textContent = `the first ${entries.length}`;
  element('table').hidden = entries.length === 0;
  element('no-keys').hidden = entries.length > 0;

  const [before, body] = [rows, element('keys')];
  rows = new Map();
  for (const [i, entry] of entries.entries()) {
    const shown = JSON.stringify(entry);
    // Two long keys may look the same once they are cut.
    let row = rows.has(entry.key) ? undefined : before?.get(entry.key);
    if (row?.dataset.shown !== shown) {
      row = keyRow(entry);
      row.dataset.shown = shown;
      if (before) row.classList.add('changed');
    }
    rows.set(entry.key, row);
    // A row that stays where it is keeps its selection and its animation.
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] ?? null);
  }
  while (body.rows.length > entries.length) body.lastChild.remove();
}

function keyRow({ key, val, token }) {
  const { item, part } = fromTemplate('key');
  part('.key').append(visible(key));
  part('.value').append(val === null ? note('not written yet') : visible(val));
  showToken(part, token);
  return item;
}

function showToken(part, token) {
  part('.token').textContent = token;
  part('.hex').textContent = BigInt(token).toString(16);
}

/** A copy of a template's only element, and a function that finds the parts of it. */
function fromTemplate(id) {
  const item = element(id).content.firstElementChild.cloneNode(true);
  return { item, part: (selector) => item.querySelector(selector) };
}

/** Text as nodes in which every character can be seen and none changes its surroundings. */
function visible(text) {
  const nodes = document.createDocumentFragment();
  if (text === '') nodes.append(note('empty'));
  for (const piece of text.split(/([\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}])/u)) {
    if (/^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]$/u.test(piece)) {
      nodes.append(span('control', `\\u{${piece.codePointAt(0).toString(16)}}`));
    } else {
      nodes.append(piece);
    }
  }
  return nodes;
}

/** Words of ours where a text would be. */
function note(text) {
  return span('note', text);
}

function span(className, text) {
  const node = document.createElement('span');
  node.className = className;
  node.textContent = text;
  return node;
}

/** Plays the animation of a class, again if need be. */
function flash(node, className) {
  if (!node) return;
  node.classList.remove('changed', className);
  node.getBoundingClientRect();
  node.classList.add(className);
}
