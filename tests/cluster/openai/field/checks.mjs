// What the cases' machine-readable checks mean here. One function a check; it throws where the answers fail it.
//
// Tolerances: everything this server computes twice is the same bits (X1), so repeat, batch, tp and prefill_decode are 0.
import assert from 'node:assert/strict';
import { send } from './client.mjs';
import { expand } from './placeholders.mjs';
import { stepsOf } from './steps.mjs';
import { bytesOf, entryLists, near, positions, select } from './values.mjs';

const tolerances = { repeat: 0, batch: 0, tp: 0, prefill_decode: 0, reference: 1e-4 };

/** The step and the rest of a path: `b.choices[0].text` when there are several steps, else a path of the only one. */
function split(run, path) {
  const [head] = path.split(/[.[]/, 1);
  if (head === 'each' || head === '*') return ['*', path.slice(head.length + 1)];
  if (run.answers.has(head)) return [head, path.slice(head.length + 1)];
  assert.ok(run.only, `${path} names no step`);
  return [run.only, path];
}

const short = (answer) => `${answer.status} ${answer.text.slice(0, 300)}`;

/** Values at a path, each with the answer it came from. */
function valuesAt(run, path) {
  const [step, rest] = split(run, path);
  return run.all(step).flatMap(({ answer, what }) =>
    (rest === '' ? [answer.body] : select(answer.body, rest)).map((value) => ({ value, what: `${what} ${rest}`, answer })));
}
function someAt(run, path) {
  const found = valuesAt(run, path);
  assert.ok(found.length > 0, `nothing at ${path}: ${short(run.first(split(run, path)[0] === '*' ? [...run.answers.keys()][0] : split(run, path)[0]))}`);
  return found;
}
const oneAt = (run, path) => someAt(run, path)[0].value;

/** A path, a literal, or a placeholder. */
async function operand(run, value) {
  if (Array.isArray(value) || /^\{\{/.test(value)) {
    const [step] = stepsOf(run.case);
    return expand(value, run.scope(step, 0, run.requests.get(step.step).body));
  }
  if (typeof value !== 'string') return value;
  const [head] = value.split(/[.[]/, 1);
  if (!run.answers.has(head) && !(run.only && /^(choices|usage|output)/.test(value))) return value; // the text itself
  const found = valuesAt(run, value).map((v) => v.value);
  return /\[(\*|-?\d*:-?\d*)\]/.test(value) ? found : (found[0] ?? null);
}

/** The two sides of `close`: logprobs of any API, or the alternatives at position 0 (`a.top10`, `a.top5@0`, `b.ids@0`). */
function comparable(run, path) {
  const special = /^(?:(\w+)\.)?(?:top(\d+)|ids)(?:@(\d+))?$/.exec(path);
  if (!special) {
    const value = oneAt(run, path);
    if (Array.isArray(value) && value.every((v) => v === null || typeof v === 'number')) return value;
    return positions(value);
  }
  const [, step, count, position] = special;
  const { top } = positions(run.first(step ?? run.only).body.choices[0].logprobs)[Number(position ?? 0)];
  const ids = run.requests.get(step ?? run.only).body.logprob_token_ids;
  return top.slice(0, Number(count ?? ids?.length ?? top.length));
}

const size = (value) => (Array.isArray(value) ? value.length : Object.keys(value).length);
const at = (run, check) => run.all(check.at ?? '*');

/** Chat or completions entries with the text they spell, of one answer. */
const each = (run, what) => run.all().flatMap(({ answer, what: where }) => {
  const lists = entryLists(answer.body);
  assert.ok(lists.length > 0, `${where}: no logprobs to judge ${what} by: ${short(answer)}`);
  return lists;
});

/** Text that is cut inside a character ends in U+FFFD where the bytes are only begun. */
function spells(bytes, text, partial) {
  const decoded = bytes.toString('utf8');
  assert.equal(partial ? decoded.replace(/\ufffd+$/, '') : decoded, partial ? text.replace(/\ufffd+$/, '') : text);
}

export const checks = {
  status(run, check) {
    for (const { answer, what } of at(run, check)) assert.ok(check.in.includes(answer.status), `${what}: ${short(answer)}`);
  },
  error(run, check) {
    for (const { answer, what } of at(run, check)) {
      assert.ok(check.in.includes(answer.status), `${what}: ${short(answer)}`);
      const { error } = answer.body ?? {};
      assert.ok(error?.message && error.type && error.code === answer.status, `${what}: ${short(answer)}`);
      if (check.mentions) assert.ok(`${error.param} ${error.message}`.includes(check.mentions), `${what}: ${short(answer)}`);
    }
  },
  never(run, check) {
    for (const { answer, what } of at(run, check)) {
      assert.ok(!answer.refused && !check.status.includes(answer.status), `${what}: ${short(answer)}`);
    }
  },
  same_status(run, { steps }) {
    assert.equal(new Set(steps.map((step) => run.first(step).status)).size, 1);
  },
  async if_200(run, { at: step, then }) {
    if (run.first(step).status === 200) for (const check of then) await apply(run, check);
  },
  async alive(run) {
    for (const url of new Set([...run.answers.keys()].map((step) => run.urlOf(step)))) {
      assert.equal((await send(url, { method: 'GET', path: '/health' })).status, 200);
      const answer = await send(url, { method: 'POST', path: '/v1/completions', body: { prompt: 'Hi', max_tokens: 1 } });
      assert.equal(answer.status, 200, short(answer));
    }
  },
  strict_json(run) {
    for (const { answer, what } of run.all()) {
      assert.ok(answer.validUtf8, `${what}: not UTF-8`);
      assert.ok(answer.stream || answer.body !== null, `${what}: not JSON: ${short(answer)}`); // events are parsed as they come
    }
  },
  async count(run, { path, eq, min, max }) {
    const expected = await operand(run, eq);
    for (const { value, what } of someAt(run, path)) {
      const n = size(value);
      if (expected !== undefined) assert.equal(n, expected, what);
      if (min !== undefined) assert.ok(n >= min, `${what}: ${n}`);
      if (max !== undefined) assert.ok(n <= max, `${what}: ${n}`);
    }
  },
  same_count(run, { paths }) {
    assert.equal(new Set(paths.map((path) => oneAt(run, path).length)).size, 1);
  },
  count_eq(run, { path, value }) {
    if (value.startsWith('each.')) { // each.logprobs.tokens against each request's own number
      for (const { answer, what } of run.all()) {
        const asked = answer.request[value.slice(5)];
        assert.equal(select(answer.body.choices[0], path.slice(5))[0].length, asked, what);
        if (answer.body.usage) assert.equal(answer.body.usage.completion_tokens, asked, what);
      }
      return;
    }
    assert.equal(size(oneAt(run, path)), oneAt(run, value), path);
  },
  count_vs_usage(run, { path, slack }) {
    const [step] = split(run, path);
    const entries = oneAt(run, path).length;
    const { completion_tokens } = run.first(step).body.usage;
    assert.ok(entries <= completion_tokens && entries >= completion_tokens - slack, `${entries} entries, ${completion_tokens} tokens`);
  },
  echo_count(run) {
    for (const { answer } of run.all()) {
      const { prompt_tokens, completion_tokens } = answer.body.usage;
      for (const list of Object.values(answer.body.choices[0].logprobs)) assert.equal(list.length, prompt_tokens + completion_tokens);
    }
  },
  num(run, { path, min = -Infinity, max = Infinity, null_at: nullAt = [], nulls_ok: nullsOk = false }) {
    if (path === '*.logprobs') {
      for (const list of each(run, 'num')) {
        for (const position of list) {
          for (const n of [position.logprob, ...(position.top ?? []).map(([, v]) => v)]) {
            assert.ok((n === null && nullsOk) || (Number.isFinite(n) && n >= min && n <= max), `${n}`);
          }
        }
      }
      return;
    }
    for (const { value, what } of someAt(run, path)) {
      (Array.isArray(value) ? value : [value]).forEach((n, i) => {
        if (nullAt.includes(i) && Array.isArray(value)) return assert.equal(n, null, what);
        assert.ok(Number.isFinite(n) && n >= min && n <= max, `${what}: ${n}`);
      });
    }
  },
  any(run, { path, lt }) {
    assert.ok(oneAt(run, path).some((n) => n < lt), path);
  },
  mass(run, { max }) {
    for (const list of each(run, 'mass')) {
      for (const { top } of list) assert.ok((top ?? []).reduce((sum, [, v]) => sum + Math.exp(v), 0) <= max);
    }
  },
  desc(run, { path }) {
    for (const { value, what } of someAt(run, path)) {
      value.forEach((top, i) => i && assert.ok(top.logprob <= value[i - 1].logprob, what));
    }
  },
  distinct(run, { path, keys }) {
    for (const { value, what } of someAt(run, path)) {
      assert.equal(new Set(value.map((item) => JSON.stringify(keys.map((key) => item[key])))).size, value.length, what);
    }
  },
  distinct_values(run, { path, min }) {
    assert.ok(new Set(oneAt(run, path)).size >= min, path);
  },
  distinct_top1(run, { path, min }) {
    const best = oneAt(run, path).filter(Boolean).map((top) => Object.entries(top).sort((a, b) => b[1] - a[1])[0][0]);
    assert.ok(new Set(best).size >= min, JSON.stringify(best));
  },
  each_eq(run, { path, value }) {
    for (const found of someAt(run, path)) assert.deepEqual(found.value, value, found.what);
  },
  async eq(run, { a, b }) {
    assert.deepEqual(await operand(run, a), await operand(run, b), `${a} and ${b}`);
  },
  close(run, { a, b, tol }) {
    let [left, right] = [comparable(run, a), comparable(run, b)];
    if (/ids@\d+$/.test(b)) [left, right] = [left, right].map((pairs) => [...pairs].sort(([x], [y]) => (x < y ? -1 : 1))); // of any order
    near(left, right, tolerances[tol], `${a} and ${b}`);
  },
  head_close(run, { short: head, long, tol }) {
    const [first, whole] = [comparable(run, head), comparable(run, long)];
    assert.ok(first.length > 1 && first.length <= whole.length);
    // The last word may be another, of several tokens.
    const shared = first.findIndex((p, i) => p?.token !== whole[i]?.token);
    const n = shared < 0 ? first.length : shared;
    assert.ok(n >= first.length - 4, `shared up to ${n} of ${first.length}`);
    near(first.slice(0, n), whole.slice(0, n), tolerances[tol], `${head} and ${long}`);
  },
  tail_close(run, { short: tail, long, tol }) {
    const whole = comparable(run, long);
    let last = comparable(run, tail);
    let scored = whole.slice(-last.length);
    // Prompt scores put a token's own value first, under its id.
    if (/prompt_logprobs/.test(long)) [last, scored] = [last.map(({ logprob }) => logprob), scored.map(({ top }) => top[0][1])];
    near(last, scored, tolerances[tol], `${tail} and ${long}`);
  },
  sum_lt(run, { a, b }) {
    const sum = (path) => oneAt(run, path).slice(1).reduce((x, y) => x + y, 0);
    assert.ok(sum(a) < sum(b) - 1, `${sum(a)} and ${sum(b)}`);
  },
  prefix_chain(run, { steps, tol }) {
    const lists = steps.map((step) => positions(run.first(step).body.choices[0].logprobs));
    steps.slice(1).forEach((step, s) => {
      const k = Number(steps[s].slice(1));
      lists[s].forEach(({ top }, i) => {
        assert.ok(top.length === k || top.length === k + 1, `${steps[s]}: ${top.length} alternatives`);
        near(top.slice(0, k), lists[s + 1][i].top.slice(0, k), tolerances[tol], `${steps[s]} in ${step}, position ${i}`);
      });
    });
  },
  copies_close(run, { a, b, tol }) {
    const [some, others] = [run.answers.get(a), run.answers.get(b)];
    assert.equal(some.length, others.length);
    some.forEach((answer, i) => near(answer.body.choices, others[i].body.choices, tolerances[tol], `copy ${i}`));
  },
  repeats_close(run, { tol }) {
    for (const answers of run.answers.values()) {
      for (const answer of answers) near(answer.body.choices, answers[0].body.choices, tolerances[tol], 'a repeat');
    }
  },
  async order(run, { path, ids, text_map: textMap }) {
    const expected = await operand(run, ids);
    const [step] = split(run, path);
    assert.deepEqual(run.requests.get(step).body.logprob_token_ids, expected);
    const texts = await run.textsOf(step, expected);
    const [, rest] = split(run, path);
    for (const value of select(run.first(step).ordered(), rest)) {
      const what = `${step} ${rest}`;
      const keys = Array.isArray(value) ? value.map((top) => top.token) : Object.keys(value).map((key) => key.replace(/^#(?=\d+$)/, ''));
      if (Array.isArray(value)) assert.equal(keys.length, expected.length, what);
      expected.forEach((id, i) => assert.ok([texts[i], `token_id:${id}`].includes(keys[i]), `${what}: ${keys[i]} for id ${id}`));
      assert.ok(keys.length <= expected.length + 1 || !textMap, what);
    }
  },
  async ids_valid(run, { path, max }) {
    const end = await operand(run, max);
    for (const { value, what } of someAt(run, path)) {
      const ids = Object.keys(value).map((key) => Number(/^token_id:(\d+)$/.exec(key)[1]));
      assert.ok(ids.every((id) => id >= 0 && id < end), `${what}: ${ids}`);
      assert.equal(new Set(ids).size, ids.length);
    }
  },
  rank_strict(run, { path }) {
    const list = oneAt(run, path);
    assert.equal(list[0], null);
    for (const entry of list.slice(1)) {
      const values = Object.values(entry);
      for (const { logprob, rank } of values) {
        const greater = values.filter((other) => other.logprob > logprob).length;
        // Alternatives of equal value are ranked by id; the prompt's own token by strictly greater values alone.
        const alike = values.filter((other) => other.logprob === logprob).length - 1;
        if (rank <= 20) assert.ok(rank >= 1 + greater && rank <= 1 + greater + alike, `rank ${rank}, ${greater} greater`);
      }
    }
  },
  chosen_matches_top(run) {
    for (const list of each(run, 'chosen_matches_top')) {
      for (const { token, logprob, top } of list) {
        const listed = (top ?? []).filter(([key]) => key === token);
        // Two tokens of one text: the better one keeps the text, the other is listed by id.
        for (const [, value] of listed) assert.ok(value === logprob || top.some(([key, v]) => key.startsWith('token_id:') && v === logprob));
      }
    }
  },
  chosen_is_top1(run) {
    for (const list of each(run, 'chosen_is_top1')) {
      for (const { logprob, top } of list) assert.equal(logprob, Math.max(...top.map(([, v]) => v)));
    }
  },
  any_outside_top(run, { min }) {
    assert.ok(outside(run).length >= min);
  },
  outside_below_last(run) {
    for (const { logprob, top, asked } of outside(run)) assert.ok(logprob <= top[asked - 1][1] && top[asked][1] === logprob);
  },
  pairs_share_top(run, { pairs }) {
    const first = oneAt(run, 'choices').map(({ logprobs }) => positions(logprobs)[0].top.slice(0, 3));
    for (const [a, b] of pairs) assert.deepEqual(first[a], first[b]);
    assert.equal(new Set(pairs.map(([a]) => JSON.stringify(first[a]))).size, pairs.length, 'different prompts');
  },
  async tokens_rebuild(run, { path, text, bos_ok: bosOk, allow_partial_utf8: partial }) {
    const tokens = oneAt(run, path);
    const wanted = await operand(run, text);
    const joined = tokens.slice(bosOk && !wanted.startsWith(tokens[0]) ? 1 : 0).join('');
    assert.equal(partial ? joined.replaceAll('\ufffd', '') : joined, partial ? wanted.replaceAll('\ufffd', '') : wanted);
  },
  bytes_rebuild(run, { entries, text, tail_partial_ok: partial }) {
    spells(bytesOf(oneAt(run, entries)), oneAt(run, text), partial);
  },
  bytes_suffix(run, { entries, text }) {
    const bytes = bytesOf(oneAt(run, entries)).toString('utf8');
    assert.ok(oneAt(run, text) === null || bytes.endsWith(oneAt(run, text)), bytes);
  },
  tokens_cover(run, { tokens, text }) {
    covers(oneAt(run, tokens).map((token) => Buffer.from(token)), oneAt(run, text));
  },
  bytes_cover(run, { entries, text }) {
    covers(oneAt(run, entries).map(({ bytes }) => Buffer.from(bytes)), oneAt(run, text));
  },
  offsets_index_text(run, { at: step }) {
    const [{ text, logprobs: { tokens, text_offset: offsets } }] = run.first(step).body.choices;
    const points = [...text];
    offsets.forEach((offset, i) => {
      assert.ok(offset >= (offsets[i - 1] ?? 0) && offset <= points.length);
      if (/\ufffd|^$|^<\|/.test(tokens[i])) return; // not whole characters
      assert.equal(points.slice(offset, offset + [...tokens[i]].length).join(''), tokens[i], `token ${i}`);
    });
  },
  token_is_bytes(run, { path }) {
    for (const { value: { token, bytes }, what } of someAt(run, path)) {
      const decoded = Buffer.from(bytes).toString('utf8');
      if (!decoded.includes('\ufffd')) assert.equal(decoded, token, what);
    }
  },
  no_markers(run, { path }) {
    for (const { token, top_logprobs: top } of oneAt(run, path)) {
      for (const shown of [token, ...top.map((t) => t.token)]) assert.doesNotMatch(shown, /[\u0120\u010a\u2581]|^<0x[0-9A-F]{2}>$/);
    }
  },
  nonempty_unless_special(run, { path }) {
    for (const { value: { token, bytes } } of someAt(run, path)) assert.ok(token !== '' || bytes.length > 0);
  },
  chosen_same_form(run) {
    let compared = 0;
    for (const { logprobs } of run.all().flatMap(({ answer }) => answer.body.choices)) {
      for (const { token, bytes, logprob, top_logprobs: [first] } of logprobs.content) {
        if (first.logprob !== logprob) continue;
        assert.deepEqual([first.token, first.bytes], [token, bytes]);
        ++compared;
      }
    }
    assert.ok(compared > 0);
  },
  text_map_best(run, { ids, text }) {
    const [byId, byText] = [ids, text].map((step) => run.first(step).body.choices[0].logprobs);
    byText.top_logprobs.forEach((top, i) => {
      if (top === null) return assert.equal(byId.top_logprobs[i], null);
      // The same values in the same order, whatever the keys are: nothing is lost to a text that two tokens share.
      assert.deepEqual(Object.values(top).sort((a, b) => b - a), Object.values(byId.top_logprobs[i]).sort((a, b) => b - a), `position ${i}`);
      assert.deepEqual(byText.token_logprobs[i], byId.token_logprobs[i]);
      const best = new Map();
      for (const [key, value] of Object.entries(top)) if (!key.startsWith('token_id:')) best.set(key, value);
      assert.equal(Math.max(...Object.values(top)), Math.max(...best.values()), 'a better value is hidden behind an id');
    });
  },
  actual_in_map(run) {
    for (const { answer } of run.all()) {
      const { tokens, token_logprobs: values, top_logprobs: maps } = answer.body.choices[0].logprobs;
      maps.forEach((top, i) => top && assert.ok(top[tokens[i]] === values[i] || Object.values(top).includes(values[i]), tokens[i]));
    }
  },
  no_resend(run, check) {
    for (const { name, answer } of at(run, check)) {
      let sent = 0;
      for (const { choices, usage } of answer.body.events) {
        for (const { logprobs } of choices) sent += (logprobs?.tokens ?? logprobs?.content ?? []).length;
        if (usage) assert.ok(sent <= usage.completion_tokens && sent >= usage.completion_tokens - 1, `${name}: ${sent} entries`);
      }
      assert.ok(answer.body.usage && sent > 0);
      assert.equal(sent, entryLists(answer.body)[0].length);
    }
  },
  events_wellformed(run) {
    for (const { answer } of run.all()) {
      const { events } = answer.body;
      assert.equal(answer.events.at(-1), '[DONE]');
      assert.deepEqual(events.at(-1).choices, []);
      assert.ok(events.at(-1).usage);
      for (const { choices } of events) {
        for (const { logprobs } of choices) {
          if (logprobs === null) continue;
          assert.ok(logprobs.content.length > 0, 'an empty list erases what clients kept');
          for (const entry of logprobs.content) {
            assert.ok(typeof entry.token === 'string' && entry.logprob <= 0 && Array.isArray(entry.bytes) && Array.isArray(entry.top_logprobs));
          }
        }
      }
    }
  },
  stream_done(run, check) {
    for (const { answer, what } of at(run, check)) assert.equal(answer.events.at(-1), '[DONE]', what);
  },
  stream_error(run, check) {
    for (const { answer, what } of at(run, check)) {
      if (answer.status >= 500) continue; // it had not begun
      assert.equal(answer.status, 200, what);
      assert.ok(answer.body.error?.code >= 500, `${what}: ${short(answer)}`);
      assert.equal(answer.events.at(-1), '[DONE]');
    }
  },
  error_or_logprobs(run, { at: step }) {
    const answer = run.first(step);
    if (answer.status === 200) return assert.ok(entryLists(answer.body)[0]?.length > 0, short(answer));
    checks.error(run, { at: step, in: [400] });
  },
  nulls(run, { path, at: indices }) {
    for (const { value, what } of someAt(run, path)) {
      value.forEach((entry, i) => assert.equal(entry === null, indices.includes(i), `${what}[${i}]`));
    }
  },
  null_or_absent(run, { path }) {
    for (const { value } of valuesAt(run, path)) assert.equal(value, null);
  },
  keys(run, { path, has, hasnt = [] }) {
    let judged = 0;
    for (const { value, what } of someAt(run, path)) {
      if (value === null) continue;
      for (const key of has) assert.ok(key in value, `${what}: no ${key}`);
      for (const key of hasnt) assert.ok(!(key in value), `${what}: ${key}`);
      ++judged;
    }
    assert.ok(judged > 0, path);
  },
  not_contains(run, { path, any }) {
    for (const text of any) assert.ok(!oneAt(run, path).includes(text), `${text} in ${oneAt(run, path)}`);
  },
  async ends_with(run, { path, value }) {
    assert.ok(oneAt(run, path).endsWith(await operand(run, value)));
  },
  async cut_at(run, { text, full, stop }) {
    const whole = oneAt(run, full);
    const cut = whole.indexOf(await operand(run, stop));
    assert.ok(cut >= 0);
    assert.equal(oneAt(run, text), whole.slice(0, cut));
  },
  within_s(run, check) {
    for (const { answer, what } of at(run, check)) assert.ok(answer.seconds <= check.s, `${what}: ${answer.seconds.toFixed(2)} s`);
  },
  responses_stream_logprobs_agree(run, { at: step, plain }) {
    const { events, response } = run.first(step).body;
    const of = (type) => events.filter((event) => event.type === type);
    const expected = run.first(plain).body.output.at(-1).content[0].logprobs;
    assert.ok(expected.length > 0);
    assert.deepEqual(of('response.output_text.delta').flatMap((event) => event.logprobs), expected);
    assert.deepEqual(of('response.output_text.done').at(-1).logprobs, expected);
    assert.deepEqual(of('response.content_part.done').at(-1).part.logprobs, expected);
    assert.deepEqual(of('response.output_item.done').at(-1).item.content[0].logprobs, expected);
    assert.deepEqual(response.output.at(-1).content[0].logprobs, expected);
  },
};

/** Positions whose chosen token is none of the natural alternatives asked for. */
function outside(run) {
  return run.all().flatMap(({ name, answer }) => {
    const asked = run.requests.get(name).body.logprobs;
    return positions(answer.body.choices[0].logprobs).filter(({ top }) => top.length === asked + 1).map((p) => ({ ...p, asked }));
  });
}

/** The joined tokens begin with the text, and the last one is needed for it. */
function covers(parts, text) {
  const wanted = Buffer.from(text);
  const joined = Buffer.concat(parts);
  assert.ok(joined.length >= wanted.length && joined.subarray(0, wanted.length).equals(wanted), `${joined} for ${text}`);
  if (parts.length > 0) assert.ok(joined.length - parts.at(-1).length < Math.max(wanted.length, 1), `an entry behind ${text}`);
}

export async function apply(run, check) {
  assert.ok(check.op in checks, `no judge for the check ${check.op}`);
  await checks[check.op](run, check);
}
