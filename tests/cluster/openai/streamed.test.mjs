// Random requests to every API, each asked twice: what a stream spells must be what the whole reply says, to the last
// entry, offset and byte; entries must spell the text (R29 to R33). SEED=N repeats a run, COUNT=N makes it longer.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cluster } from './support.mjs';
import { Dice, sampling, stopsFrom, text, tools } from './dice.mjs';
import { merge, send } from './field/client.mjs';

const firstSeed = Number(process.env.SEED ?? (Date.now() ^ (process.pid << 8)) % 1_000_000);
const count = Number(process.env.COUNT ?? 60);

let cluster;
before(async () => {
  cluster = await Cluster.start({ args: ['--prompt-logprobs', '--kv-cache-tokens', '16384'] });
});
after(async () => {
  if (cluster) assert.equal((await cluster.stop()).code, 0, cluster.log);
});

async function post(path, body) {
  const answer = await send(cluster.url, { method: 'POST', path: `/v1/${path}`, body });
  assert.equal(answer.status, 200, answer.text);
  assert.ok(answer.validUtf8);
  return answer;
}
async function twice(path, body, dice) {
  const whole = (await post(path, body)).body;
  const streamed = await post(path, { ...body, stream: true, ...dice.maybe(4, () => ({ stream_interval: 1 + dice.below(9) })) });
  return { whole, streamed };
}

function checkCompletion({ text: whole, logprobs }) {
  if (!logprobs) return;
  const { tokens, text_offset: offsets, token_logprobs: values, top_logprobs: tops } = logprobs;
  assert.ok([offsets, values, tops].every((list) => list.length === tokens.length));
  const points = [...whole];
  offsets.forEach((offset, i) => {
    assert.ok(offset >= (offsets[i - 1] ?? 0) && offset <= points.length, `offset ${i}`);
    if (/\ufffd|^$|^<|^token_id:/.test(tokens[i])) return; // a fragment, a special token that may be hidden, or an id
    const shown = points.slice(offset, offset + [...tokens[i]].length).join('');
    // What completes a character shows the whole of it; a stop may have cut the last token.
    assert.ok(i + 1 === tokens.length ? tokens[i].startsWith(shown) : shown === tokens[i], `token ${i} ${tokens[i]} at ${offset}: ${shown}`);
  });
}

/** The bytes of the entries, and the text that they must spell: all of it, but that a stop may cut the last token. */
function checkBytes(entries, whole, what) {
  const bytes = Buffer.concat(entries.map(({ bytes: b }) => Buffer.from(b)));
  const spelled = new TextDecoder('utf-8').decode(bytes);
  const known = spelled.replace(/\ufffd+$/, '');
  const wanted = whole.replace(/\ufffd+$/, '');
  assert.ok(known.startsWith(wanted), `${what}: ${JSON.stringify(spelled)} for ${JSON.stringify(whole)}`);
}

// A stream without an entry has null where the whole reply has empty lists.
const shape = ({ text: t, logprobs, finish_reason, stop_reason, token_ids: ids }) =>
  ({ text: t, logprobs: logprobs?.tokens.length ? logprobs : null, finish_reason, stop_reason: stop_reason ?? null, ids: ids ?? null });

async function completion(dice) {
  const body = {
    prompt: text(dice), ...sampling(dice), logprobs: dice.of([null, 0, 1, 4]), return_token_ids: true,
    ...dice.maybe(4, () => ({ return_tokens_as_token_ids: true })), ...dice.maybe(4, () => ({ echo: true })),
  };
  if (dice.below(2)) {
    const { choices } = (await post('completions', { ...body, echo: false })).body;
    Object.assign(body, { stop: stopsFrom(dice, choices[0].text), include_stop_str_in_output: dice.below(2) === 0 });
  }
  const { whole, streamed } = await twice('completions', body, dice);
  assert.deepEqual(streamed.body.choices.map(shape), whole.choices.map(shape));
  whole.choices.forEach(checkCompletion);
}

function flat({ message, logprobs, finish_reason, stop_reason, token_ids }) {
  return {
    content: message.content || null, reasoning: message.reasoning || null,
    calls: (message.tool_calls ?? []).map((call) => call.function), entries: logprobs?.content.length ? logprobs.content : null, finish_reason,
    stop_reason: stop_reason ?? null, ids: token_ids ?? null,
  };
}

async function chat(dice) {
  const k = dice.of([null, 0, 3]);
  const body = {
    messages: [{ role: 'user', content: text(dice) }], ...sampling(dice), return_token_ids: true,
    ...(k === null ? {} : { logprobs: true, top_logprobs: k }),
    ...dice.maybe(2, () => ({ chat_template_kwargs: { enable_thinking: false } })),
    ...dice.maybe(3, () => ({ tools, tool_choice: dice.of(['auto', 'required', { type: 'function', function: { name: 'add' } }]) })),
    ...dice.maybe(6, () => ({ include_reasoning: false })),
  };
  if (dice.below(2)) {
    const { choices } = (await post('chat/completions', body)).body;
    body.stop = stopsFrom(dice, choices[0].message.content ?? 'x');
  }
  const { whole, streamed } = await twice('chat/completions', body, dice);
  assert.deepEqual(streamed.body.choices.map(flat), whole.choices.map(flat));
  for (const choice of whole.choices) {
    const { entries, content, reasoning, calls, ids } = flat(choice);
    if (!entries) continue;
    // An ignored end of text keeps its entry; its text is hidden.
    const seen = entries.filter(({ token }) => body.skip_special_tokens === false || !/^<\|\w+\|>$/.test(token));
    const bytes = Buffer.concat(seen.map(({ bytes: b }) => Buffer.from(b))).toString('utf8');
    const inside = (part) => assert.ok(bytes.includes(part.replace(/^\ufffd+|\ufffd+$/g, '')), `${JSON.stringify(part)} is not in ${JSON.stringify(bytes)}`);
    if (content && !content.includes('\ufffd')) inside(content);
    if (reasoning && !reasoning.includes('\ufffd')) inside(reasoning);
    if (calls.length === 0 && !reasoning && content && entries.length === ids.length) checkBytes(seen, content, 'content');
    for (const entry of entries) assert.equal(entry.top_logprobs.length, k);
  }
}

async function responses(dice) {
  const { seed, temperature, max_tokens: max, top_p: topP } = sampling(dice);
  const body = {
    input: text(dice), seed, temperature, max_output_tokens: max + 20, ...(topP ? { top_p: topP } : {}),
    top_logprobs: 2, include: ['message.output_text.logprobs'],
    ...dice.maybe(2, () => ({ reasoning: { effort: 'none' } })),
    ...dice.maybe(3, () => ({ tools: tools.map((t) => ({ type: 'function', ...t.function })), tool_choice: dice.of(['auto', 'required']) })),
  };
  const { whole, streamed } = await twice('responses', body, dice);
  const nameless = (value) => JSON.parse(JSON.stringify(value, (key, v) => (key === 'id' || key === 'call_id' || key === 'item_id' ? undefined : v)));
  assert.deepEqual(nameless(streamed.body.response.output), nameless(whole.output));
  assert.equal(streamed.body.response.status, whole.status);
  const { events } = streamed.body;
  whole.output.forEach((item, index) => {
    const of = (type) => events.filter((event) => event.type === type && event.output_index === index);
    if (item.type === 'function_call') assert.equal(of('response.function_call_arguments.delta').map(({ delta }) => delta).join(''), item.arguments);
    if (item.type !== 'message') return;
    const [{ text: spoken, logprobs }] = item.content;
    assert.equal(of('response.output_text.delta').map(({ delta }) => delta).join(''), spoken);
    assert.deepEqual(of('response.output_text.delta').flatMap((event) => event.logprobs), logprobs);
    // A token may begin before the text, in white space that was stripped: then its bytes in the text have no entry.
    const bytes = new TextDecoder('utf-8').decode(Buffer.concat(logprobs.map(({ bytes: b }) => Buffer.from(b)))).replace(/\ufffd+$/, '');
    const wanted = spoken.replace(/\ufffd+$/, '');
    const from = [...Array(Math.min(wanted.length, 24) + 1).keys()].find((i) => bytes.startsWith(wanted.slice(i)));
    assert.ok(from !== undefined, `${JSON.stringify(bytes)} for ${JSON.stringify(spoken)}`);
  });
}

for (const [name, ask] of Object.entries({ completion, chat, responses })) {
  test(`${name}: ${count} random requests, streamed and whole`, async () => {
    for (let at = 0; at < count; at += 4) {
      await Promise.all(Array.from({ length: Math.min(4, count - at) }, async (_, i) => {
        const seed = firstSeed + at + i;
        try {
          await ask(new Dice(seed));
        } catch (error) {
          error.message = `SEED=${seed} COUNT=1: ${error.message}`;
          throw error;
        }
      }));
    }
  });
}

test('merging is what the tests above rest on: a doubled or lost piece shows', () => {
  const piece = (t, token) => ({ choices: [{ index: 0, text: t, logprobs: { tokens: [token] }, finish_reason: null }] });
  assert.deepEqual(merge([piece('a', 'a'), piece('', 'b'), piece('bc', 'c')]).choices, [{ index: 0, text: 'abc', logprobs: { tokens: ['a', 'b', 'c'] } }]);
});
