// A description of elements, and the page made to agree with it: what stays the same is not touched, so that
// focus, selection and place stay where they are.
//
// Invariant: text becomes text nodes; a function becomes a listener; nothing else reaches the document but
// attributes that this script names.

const DRAWN = new Set(['svg', 'path', 'rect', 'circle', 'line']);
const SVG = 'http://www.w3.org/2000/svg';

/** Nothing that an answer holds can be taken for one. */
class Described {}

/** An element as a description: its name with classes after dots, attributes if any, and what is in it.
   `key` tells it from its siblings, whatever their order. */
function h(what, ...kids) {
  const [tag, ...classes] = what.split('.');
  const { key, ...attributes } = kids[0]?.constructor === Object ? kids.shift() : {};
  if (classes.length) attributes.class = classes.join(' ');
  return Object.assign(new Described(), {
    tag,
    key,
    attributes,
    kids: kids.flat(3).filter((kid) => (kid ?? false) !== false),
  });
}

/** Makes the children of `parent` what `kids` describe, and leaves the focus where it was. */
function render(parent, ...kids) {
  const focused = document.activeElement;
  patch(parent, h('div', ...kids).kids);
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

function patch(parent, kids) {
  const wanted = new Set(kids.map((kid) => kid.key).filter((key) => key !== undefined));
  const keyed = new Map();
  for (const node of [...parent.childNodes]) {
    if (node.key === undefined) continue;
    // Removed first: what stays then needs no move, and a move would cost it the focus.
    if (wanted.has(node.key)) keyed.set(node.key, node);
    else node.remove();
  }
  let at = parent.firstChild;
  for (const kid of kids) {
    const candidate = kid.key === undefined ? at : keyed.get(kid.key);
    const node = fits(candidate, kid) ? candidate : made(kid);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    update(node, kid);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function fits(node, kid) {
  if (!node) return false;
  if (!(kid instanceof Described)) return node.nodeType === Node.TEXT_NODE;
  return node.key === kid.key && node.localName === kid.tag;
}

function made(kid) {
  if (!(kid instanceof Described)) return document.createTextNode('');
  const node = DRAWN.has(kid.tag) ? document.createElementNS(SVG, kid.tag) : document.createElement(kid.tag);
  node.key = kid.key;
  return node;
}

function update(node, kid) {
  if (!(kid instanceof Described)) {
    const text = String(kid);
    if (node.data !== text) node.data = text;
    return;
  }
  if (node.described === kid) return;
  const before = node.described?.attributes ?? {};
  for (const name of Object.keys(before)) if (!(name in kid.attributes)) set(node, name, null);
  for (const [name, value] of Object.entries(kid.attributes))
    if (before[name] !== value) set(node, name, value);
  node.described = kid;
  patch(node, kid.kids);
}

function set(node, name, value) {
  if (typeof value === 'function' || name.startsWith('on'))
    node[name] = typeof value === 'function' ? value : null;
  else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? '' : value);
}
