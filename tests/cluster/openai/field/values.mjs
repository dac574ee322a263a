// Paths into answers, and logprobs of every API in one shape.
import assert from 'node:assert/strict';

/**
 * All values at `path` below `root`: dots, [i] (from the end when negative), and [*] or [a:b], which fan out over a list.
 * [a:b] of an object of lists cuts each of them. A missing step gives nothing.
 */
export function select(root, path) {
  let values = [root];
  for (const part of path.match(/\[[^\]]*\]|[^.[\]]+/g) ?? []) {
    values = values.flatMap((value) => step(value, part));
  }
  return values;
}

function step(value, part) {
  if (value === null || value === undefined) return [];
  if (!part.startsWith('[')) return part === '*' ? Object.values(value) : value[part] === undefined ? [] : [value[part]];
  const inside = part.slice(1, -1);
  if (inside === '*') return Array.isArray(value) ? value : [];
  if (!inside.includes(':')) return value.at?.(Number(inside)) === undefined ? [] : [value.at(Number(inside))];
  const [from, to] = inside.split(':').map((n) => (n === '' ? undefined : Number(n)));
  if (Array.isArray(value)) return value.slice(from, to);
  return [Object.fromEntries(Object.entries(value).map(([key, list]) => [key, Array.isArray(list) ? list.slice(from, to) : list]))];
}

/** Every object under `root` that holds logprob entries: completions arrays, chat or responses lists. */
export function entryLists(root, found = []) {
  if (root === null || typeof root !== 'object') return found;
  if (Array.isArray(root.tokens) && Array.isArray(root.token_logprobs)) found.push(positions(root));
  else if (Array.isArray(root.content) && root.content[0]?.top_logprobs) found.push(positions(root));
  else for (const [key, value] of Object.entries(root)) if (key !== 'events' && key !== 'response') entryLists(value, found);
  return found;
}

/** One shape for completions arrays, chat entries and prompt_logprobs: [{token, logprob, top: [[key, value]]}] or null. */
export function positions(value) {
  if (Array.isArray(value?.content)) return positions(value.content);
  if (Array.isArray(value?.tokens)) {
    return value.tokens.map((token, i) => ({
      token, logprob: value.token_logprobs[i], top: value.top_logprobs[i] && Object.entries(value.top_logprobs[i]),
    }));
  }
  assert.ok(Array.isArray(value), `no logprobs: ${JSON.stringify(value)?.slice(0, 200)}`);
  return value.map((entry) => {
    if (entry === null || typeof entry !== 'object') return entry;
    if ('logprob' in entry) {
      return { token: entry.token, logprob: entry.logprob, top: entry.top_logprobs?.map((top) => [JSON.stringify(top.bytes), top.logprob]) };
    }
    return { top: Object.entries(entry).map(([id, { logprob, rank }]) => [id, logprob, rank]) };
  });
}

/** Throws where two values differ by more than `tolerance` in a number, or at all in anything else. */
export function near(a, b, tolerance, what) {
  if (typeof a === 'number' && typeof b === 'number') {
    assert.ok(Math.abs(a - b) <= tolerance, `${what}: ${a} and ${b}`);
  } else if (a && b && typeof a === 'object' && typeof b === 'object') {
    assert.deepEqual(Object.keys(a), Object.keys(b), what);
    for (const key of Object.keys(a)) near(a[key], b[key], tolerance, `${what}.${key}`);
  } else {
    assert.deepEqual(a, b, what);
  }
}

export const bytesOf = (entries) => Buffer.from(entries.flatMap((entry) => entry.bytes));
