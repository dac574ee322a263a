// The {{placeholders}} of the cases: texts, numbers, lists, and values from earlier answers.
import assert from 'node:assert/strict';
import { select } from './values.mjs';

const common = 'the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which'.split(' ');
/** `n` common words, the same every time, and another word early enough that no two counts share everything. */
export const words = (n) => Array.from({ length: n }, (_, i) => common[(i * 7 + (i >> 3)) % common.length]).join(' ');

/**
 * Fills in one step. `scope`: {facts: {VOCAB, MAXLEN, KV_TOKENS, CHUNK, EOS, BOS}, model, step(name) -> Answer,
 * request(name) -> what was sent, copy, prompt, oneToken(text) -> id, ask(body) -> reply}. Unknown placeholders throw.
 */
export async function expand(value, scope) {
  if (typeof value === 'string') return expandString(value, scope);
  if (Array.isArray(value)) return Promise.all(value.map((item) => expand(item, scope)));
  if (value === null || typeof value !== 'object') return value;
  const out = {};
  for (const [key, item] of Object.entries(value)) out[await expandString(key, scope)] = await expand(item, scope);
  return out;
}

async function expandString(text, scope) {
  const whole = /^\{\{([^{}]*)\}\}$/.exec(text);
  if (whole) return lookUp(whole[1], scope);
  let out = '';
  let from = 0;
  for (const match of text.matchAll(/\{\{([^{}]*)\}\}/g)) {
    out += text.slice(from, match.index) + (await lookUp(match[1], scope));
    from = match.index + match[0].length;
  }
  return (out + text.slice(from)).replaceAll('MODEL', scope.model);
}

function number(text, { facts }) {
  const match = /^([A-Z_]+)?([+-]?\d+)?$/.exec(text);
  assert.ok(match && (!match[1] || match[1] in facts), `unknown number ${text}`);
  return (match[1] ? facts[match[1]] : 0) + Number(match[2] ?? 0);
}

const list = (text) => text.split(',').map((item) => JSON.parse(item));

async function lookUp(text, scope) {
  const [name, ...rest] = text.split(':');
  switch (name) {
    case 'words': return words(number(rest[0], scope));
    case 'fill': return Array.from({ length: number(rest[0], scope) }, (_, i) => 300 + ((i * 37) % 1000) % Math.min(1000, scope.facts.VOCAB - 320));
    case 'distinct': return `Ship number ${scope.copy} in the fog`;
    case 'i': return scope.copy;
    case 'cycle': return ((items) => items[scope.copy % items.length])(list(rest[0]));
    case 'range': return Array.from({ length: rest[1] - rest[0] }, (_, i) => Number(rest[0]) + i);
    case 'biasmap': return Object.fromEntries(Array.from({ length: rest[1] - rest[0] }, (_, i) => [Number(rest[0]) + i, 1]));
    case 'strings': return Array.from({ length: Number(rest[0]) }, (_, i) => `string ${i}`);
    case 'prompt': return scope.prompt;
    case 'tok': return scope.oneToken(rest[0]);
    case 'token': return fresh(scope.step(rest[0]).body.choices[0], Number(rest[1]));
    case 'straddle': return straddle(scope.step(rest[0]).body.choices[0], ...rest.slice(1).map(Number));
    case 'ids': return idsOf(scope, rest);
    default:
      if (/^[A-Z_]+([+-]\d+)?$/.test(text)) return number(text, scope);
      assert.ok(scope.knows(name), `unknown placeholder {{${text}}}`);
      return select(scope.step(name).body, rest.join(':'))[0];
  }
}

/** Where token `i` stands in the text, or null when its string is not there as it is: a special token, a part of a character. */
function place({ text, logprobs: { tokens, text_offset: offsets } }, i) {
  const from = [...text].slice(0, offsets[i]).join('').length;
  return tokens[i] !== '' && text.startsWith(tokens[i], from) && !tokens[i].includes('\ufffd') ? from : null;
}

/** The first token from `k` on whose string did not occur before. */
function fresh(choice, k) {
  const { tokens } = choice.logprobs;
  for (let i = k; i < tokens.length; ++i) {
    const at = place(choice, i);
    if (at !== null && tokens[i].trim() !== '' && choice.text.indexOf(tokens[i]) === at) return tokens[i];
  }
  return assert.fail(`no token from ${k} on is new in ${JSON.stringify(tokens)}`);
}

/** The last `left` characters of a token and the first `right` of the next, at the first place from `k` where both have them. */
function straddle(choice, k, left, right) {
  const { tokens } = choice.logprobs;
  for (let i = k; i + 1 < tokens.length; ++i) {
    const [at, next] = [place(choice, i), place(choice, i + 1)];
    if (at === null || next !== at + tokens[i].length || tokens[i].length < left || tokens[i + 1].length < right) continue;
    if (/[^\x20-\x7e]/.test(tokens[i] + tokens[i + 1])) continue; // so that characters are code units
    const stop = tokens[i].slice(-left) + tokens[i + 1].slice(0, right);
    if (choice.text.indexOf(stop) === next - left) return stop;
  }
  return assert.fail(`no place for a stop of ${left} and ${right} characters from ${k} on in ${JSON.stringify(tokens)}`);
}

/**
 * ids:STEP:topN:POSITION[:reversed]: ids of natural alternatives, asked for again by id; ids:STEP:prompt+output: the
 * prompt's and those of the entries.
 */
async function idsOf(scope, [step, what, position, order]) {
  if (what === 'prompt+output') {
    const [{ prompt_token_ids: prompt, token_ids: output }] = (await scope.ask({ ...scope.request(step).body, return_token_ids: true })).choices;
    return [...prompt, ...output.slice(0, scope.step(step).body.choices[0].logprobs.tokens.length)];
  }
  const match = /^top(\d+)$/.exec(what);
  assert.ok(match, `unknown list of ids ${what}`);
  const body = { ...scope.request(step).body, return_tokens_as_token_ids: true };
  const reply = await scope.ask(body);
  const ids = Object.keys(reply.choices[0].logprobs.top_logprobs[Number(position)]).slice(0, Number(match[1])).map((key) => Number(key.slice(9)));
  return order === 'reversed' ? ids.reverse() : ids;
}
