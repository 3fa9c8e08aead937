// Beside the drawing: the chosen word with its heads and labels, what is decided, constraints, the best trees, the list.

import { allow, canRedo, canUndo, count, current, decide, forbid, isForbidden, name, release, retag, setOption, show, work } from './work.js';
import { choose, element, give, leastCertain, nodeText, pick } from './tree.js';

const at = (id) => document.getElementById(id);
const TAGS = 'ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X'.split(' ');
const SHOWN = 6;  // heads of a word
const LISTED = 400;  // sentences in the list at a time

export function make(kind, text, attributes = {}, ...inside) {
  const made = document.createElement(kind);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'on') made.addEventListener('click', value);
    else if (value === true) made.setAttribute(key, '');
    else if (value !== false && value !== null) made.setAttribute(key, value);
  }
  made.append(...inside);
  return made;
}

export function percent(value) {
  if (value === null || value === undefined) return '';
  const share = 100 * value;
  if (share >= 99.95) return value >= 1 - 1e-9 ? '100 %' : '> 99.9 %';
  return share >= 9.95 ? `${share.toFixed(0)} %` : share >= 0.05 ? `${share.toFixed(1)} %` : '< 0.1 %';
}

function bar(value) {
  const made = make('i');
  made.style.width = `${Math.round(100 * Math.min(Math.max(value, 0), 1))}%`;
  return made;
}

// The chosen word ----------------------------------------------------------------------------------------------------

export function showPanel() {
  const s = current(), panel = at('panel'), word = pick.word;
  const had = panel.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  if (!s?.answer) { panel.replaceChildren(); return; }
  if (!word) {
    panel.replaceChildren(...overview(s));
    return;
  }
  const { heads, deprels, confidence, label_confidence: sureOfLabel, upos, words } = s.answer;
  const head = heads[word - 1], label = deprels[word - 1];
  const title = make('h2', '', {}, make('small', String(word)), make('bdi', words[word - 1]));
  if (upos[word - 1] !== '_') title.append(make('small', upos[word - 1]));
  if (word in s.required) title.append(make('small', 'its head is decided'));
  const list = make('ul', '', { class: 'heads', 'aria-label': 'Heads' });
  for (const node of candidates(s, word)) list.append(headRow(s, word, node, head));
  const names = [...new Set([label, ...work.model.labels])].sort();
  const labels = make('select', '', { 'data-key': 'label' }, make('option', 'the best one', { value: '' }),
    ...names.map((each) => make('option', each, { value: each })));
  labels.value = s.labels[word] ?? '';
  labels.options[0].textContent = word in s.labels ? 'the best one' : `${label} (${percent(sureOfLabel?.[word - 1])})`;
  labels.addEventListener('change', () => name(word, labels.value));
  const fields = make('div', '', { class: 'fields' }, make('label', 'Label', {}, labels));
  if (work.model.columns.includes('upos')) {
    const tags = make('select', '', { 'data-key': 'tag' },
      ...[...new Set(['_', upos[word - 1], ...TAGS])].map((tag) => make('option', tag === '_' ? 'none' : tag, { value: tag })));
    tags.value = upos[word - 1];
    tags.addEventListener('change', () => retag(word, tags.value));
    fields.append(make('label', 'Tag', {}, tags));
  }
  const acts = make('div', '', { class: 'row' });
  const key = (text, letter) => [text, make('kbd', letter)];
  if (word in s.required) acts.append(make('button', '', { type: 'button', 'data-key': 'free', on: () => release(word) }, ...key('Leave open', 'a')));
  else acts.append(make('button', '', { type: 'button', 'data-key': 'keep', on: () => keep(word) }, ...key('Keep this arc', 'a')));
  acts.append(make('button', '', { type: 'button', 'data-key': 'forbid', on: () => forbid(head, word) }, ...key('Forbid this arc', 'f')));
  const sure = confidence ? `${percent(confidence[word - 1])} sure` : '';
  panel.replaceChildren(title, make('p', `${label} of ${nodeText(s, head)}, ${sure}`, { class: 'soft' }), list, fields, acts);
  if (had) panel.querySelector(`[data-key="${had}"]`)?.focus();
}

// No word is chosen: those that are least certain.
function overview(s) {
  const sure = s.answer.confidence ?? [];
  const open = sure.map((share, i) => [share, i + 1]).filter(([share, word]) => share < 0.9995 && !(word in s.required));
  const some = open.sort((a, b) => a[0] - b[0]).slice(0, SHOWN);
  if (!some.length) return [make('h2', 'Every word is certain'), make('p', 'Click a word, then its head, to correct an arc all the same.', { class: 'soft' })];
  const list = make('ul', '', { class: 'heads alike', 'aria-label': 'The least certain words' }, ...some.map(([share, word]) => {
    const said = `${nodeText(s, word)} ← ${nodeText(s, s.answer.heads[word - 1])}`;
    return make('li', '', {}, make('button', '', { type: 'button', class: 'pick', on: () => choose(word) },
      bar(share), make('span', said, { dir: 'auto' }), make('small', `${s.answer.deprels[word - 1]}, ${percent(share)}`)));
  }));
  return [make('h2', 'The least certain arcs'), list];
}

export function keep(word) {
  const s = current(), head = s.answer.heads[word - 1];
  decide((one) => { one.required[word] = head; }, `${s.answer.words[word - 1]} ← ${nodeText(s, head)}`);
}

function candidates(s, word) {
  const column = (s.answer.marginals ?? []).map((row, node) => [row[word], node]).filter(([, node]) => node !== word);
  const barred = s.forbidden.filter(([, w]) => w === word).map(([h]) => h);
  const own = s.answer.heads[word - 1];
  const ranked = column.sort((a, b) => b[0] - a[0]).map(([, node]) => node).filter((node) => !barred.includes(node));
  const top = ranked.slice(0, SHOWN);
  if (!top.includes(own)) top.unshift(own);
  if (!top.includes(0) && !barred.includes(0)) top.push(0);
  return [...top, ...barred];
}

function headRow(s, word, node, head) {
  const barred = isForbidden(s, node, word), share = s.answer.marginals?.[node]?.[word];
  const said = share === undefined ? '' : percent(share);
  const row = make('li', '', { class: `${node === head ? 'now' : ''} ${barred ? 'no' : ''}` });
  const choice = make('button', '', { type: 'button', class: 'pick', 'data-key': `head${node}`, on: () => give(node) },
    bar(share ?? 0), make('span', nodeText(s, node), { dir: 'auto' }), make('small', barred ? 'forbidden' : said));
  const change = barred
    ? make('button', '↺', { type: 'button', class: 'forbid', title: 'Allow this head again', 'aria-label': `Allow ${nodeText(s, node)} as its head`, on: () => allow(node, word) })
    : make('button', '×', { type: 'button', class: 'forbid', title: 'Forbid this head', 'aria-label': `Forbid ${nodeText(s, node)} as its head`, on: () => forbid(node, word) });
  row.append(choice, change);
  return row;
}

// What is decided ----------------------------------------------------------------------------------------------------

export function showSide() {
  const s = current();
  at('undo').disabled = !canUndo();
  at('redo').disabled = !canRedo();
  if (!s) return;
  const chips = [];
  const chip = (text, word, off) => chips.push(make('li', '', {}, make('span', text, { dir: 'auto' }),
    make('button', '×', { type: 'button', 'aria-label': `Take back: ${text}`, on: () => { off(); choose(word); } })));
  for (const [word, head] of Object.entries(s.required)) chip(`${nodeText(s, Number(word))} ← ${nodeText(s, head)}`, Number(word), () => release(Number(word)));
  for (const [head, word] of s.forbidden) chip(`${nodeText(s, word)} not ← ${nodeText(s, head)}`, word, () => allow(head, word));
  for (const [word, label] of Object.entries(s.labels)) chip(`${nodeText(s, Number(word))}: ${label}`, Number(word), () => name(Number(word), ''));
  at('decided').replaceChildren(...(chips.length ? chips : [make('li', 'Nothing yet.', { class: 'none soft' })]));
  at('count').textContent = chips.length ? `· ${chips.length}` : '';
  const least = leastCertain(s);
  at('least').disabled = !least;
  at('least').replaceChildren(make('span', least ? `Look at ${nodeText(s, least)} · ${percent(s.answer.confidence[least - 1])} sure` : 'Every word is certain'), make('kbd', 'n'));
}

const TOLD = { ud: 'Universal Dependencies', conjunction_en: 'Coordination (English)', conjunction_nl: 'Coordination (Dutch)' };

export function showConstraints() {
  const rows = work.model.constraints.map((one) => checkbox(TOLD[one] ?? one, work.constraints.includes(one), (on) => {
    setOption('constraints', on ? [...work.constraints, one] : work.constraints.filter((other) => other !== one));
  }));
  if (!work.model.projective) rows.push(checkbox('No crossing arcs', work.projective === true, (on) => setOption('projective', on || null)));
  at('constraints').replaceChildren(...rows);
}

function checkbox(text, checked, change) {
  const input = make('input', '', { type: 'checkbox' });
  input.checked = checked;
  input.addEventListener('change', () => change(input.checked));
  return make('label', '', {}, input, text);
}

// The best trees -----------------------------------------------------------------------------------------------------

export function showBest() {
  const s = current(), some = s?.alternatives ?? [];
  at('best-title').hidden = !some.length;
  at('best-title').textContent = work.constraints.length ? 'The most probable trees, constraints aside' : 'The most probable trees';
  at('best').replaceChildren(...some.map((one, rank) => {
    const differs = one.heads.map((head, i) => head !== s.answer.heads[i]);
    const words = differs.flatMap((is, i) => (is ? [s.answer.words[i]] : []));
    const said = words.length ? `other head: ${words.slice(0, 4).join(', ')}${words.length > 4 ? ' …' : ''}` : 'the tree above';
    const share = make('div', '', { class: 'bar' }, bar(one.probability ?? 0));
    return make('li', '', {}, make('button', '', { type: 'button', 'aria-pressed': String(!words.length), on: () => takeBest(rank) },
      small(one.heads, differs), make('b', `${percent(one.probability)}`), share, make('small', said, { dir: 'auto' })));
  }));
}

function small(heads, differs) {
  const step = 10, width = step * (heads.length + 1), high = 40;
  const svg = element('svg', { viewBox: `0 0 ${width} ${high + 4}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, null);
  const longest = Math.max(1, ...heads.map((head, i) => (head ? Math.abs(head - i - 1) : 1)));
  heads.map((head, i) => [head, i]).sort((a, b) => differs[a[1]] - differs[b[1]]).forEach(([head, i]) => {
    const to = step * (i + 1), kind = differs[i] ? { class: 'other' } : {};
    if (!head) { element('path', { d: `M${to} 0V${high}`, ...kind }, svg); return; }
    const from = step * head, top = high - (high - 2) * (0.25 + 0.75 * Math.sqrt(Math.abs(head - i - 1) / longest));
    element('path', { d: `M${from} ${high}C${from} ${top} ${to} ${top} ${to} ${high}`, ...kind }, svg);
  });
  return svg;
}

// Keep those arcs of one of the best trees that the tree above has not.
export function takeBest(rank) {
  const s = current(), one = s?.alternatives?.[rank];
  if (!one) return;
  decide((given) => {
    one.heads.forEach((head, i) => { if (head !== s.answer.heads[i]) given.required[i + 1] = head; });
    given.forbidden = given.forbidden.filter(([h, w]) => given.required[w] !== h);
  }, `tree ${rank + 1}`);
}

// The list -----------------------------------------------------------------------------------------------------------

export function showList() {
  const total = work.sentences.length;
  document.body.classList.toggle('alone', total < 2);
  at('place').textContent = total ? `${work.current + 1} of ${total}` : '';
  at('previous').disabled = work.current <= 0;
  at('next').disabled = work.current >= total - 1;
  if (total < 2) { at('list').replaceChildren(); return; }
  const first = Math.max(0, Math.min(work.current - LISTED / 2, total - LISTED));
  at('list').replaceChildren(...work.sentences.slice(first, first + LISTED).map((s, i) => {
    const index = first + i, decided = count(s);
    const least = s.answer?.confidence ? Math.min(1, ...s.answer.confidence) : null;
    const button = make('button', '', { type: 'button', 'aria-current': index === work.current ? 'true' : null, on: () => show(index) },
      make('span', s.text), make('small', s.error ? '!' : decided ? `${decided} ✓` : ''));
    if (least !== null) {
      const meter = make('div', '', { class: 'meter', title: `least certain word: ${percent(least)}` }, bar(least));
      button.append(meter);
    }
    return make('li', '', {}, button);
  }));
  const chosen = at('list').querySelector('[aria-current]');
  if (chosen) {
    const list = at('list'), top = chosen.offsetTop - list.offsetTop;
    if (top < list.scrollTop || top + chosen.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
  }
}

