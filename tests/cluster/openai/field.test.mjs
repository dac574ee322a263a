// Faults that people reported of other servers, each as small requests with an expectation that can be checked:
// $HELIOS_TEST_DATA/cases/cases.jsonl. Every case has its place below, the server that it is put to: a case
// without a place fails, and so does a place without a case.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { describe, test } from 'node:test';
import { apply } from './field/checks.mjs';
import { extras, judges, metrics } from './field/judges.mjs';
import { announce, done, started } from './field/servers.mjs';
import { Run, stepsOf } from './field/steps.mjs';

const file = path.join(process.env.HELIOS_TEST_DATA ?? '', 'cases/cases.jsonl');
const skip = process.env.HELIOS_TEST_DATA && fs.existsSync(file) ? false : 'NOT CHECKED: set HELIOS_TEST_DATA to the reference data';
const list = (text) => text.trim().split(/\s+/);
const only = process.env.CASES && list(process.env.CASES); // CASES='C001 C003' asks these alone

/** Lanes run side by side, `together` cases of each at a time; the last lane is measured with nothing beside it. */
const lanes = [
  { name: 'load', together: 1, cases: { load: list('C154 C153 C151 C043 C141'), wide: list('C156 C146'), small: list('C058 C163') } },
  { name: 'faults', together: 1, cases: { own: list('C041 C158 C160 C161'), nan: list('C015'), odd: list('C037'), golden: list('C023 C024 C033') } },
  {
    name: 'answers', together: 3,
    cases: {
      unscored: list('C142'),
      spec: list('C044 C045 C048 C049 C050 C051 C053'),
      parsers: list('C076 C078 C093'),
      main: list(`C034 C036 C149 C148 C001 C003 C004 C006 C007 C009 C011 C013 C016 C019 C021 C025 C027 C028 C029 C030 C031 C039
        C040 C054 C056 C059 C061 C063 C064 C066 C067 C068 C069 C070 C072 C074 C080 C081 C082 C083 C085 C086 C088 C089 C092 C094
        C096 C098 C099 C100 C101 C102 C103 C105 C107 C108 C110 C112 C114 C115 C117 C119 C120 C121 C122 C124 C126 C127 C128 C129
        C131 C132 C134 C135 C137 C139 C144 C145 C150`),
    },
  },
];
const measured = { load: list('C157 C162') };

/** Servers that a case names itself, or whose judge asks for them. */
const named = { tp1: 'one_rank', tp2: 'main', plain: 'main', spec: 'spec' };
const besides = {
  ...Object.fromEntries(list('C044 C048 C051').map((id) => [id, ['main']])),
  C033: ['golden_bf16', 'golden_f16'], C034: ['one_rank'], C036: ['one_rank', 'four_ranks', 'gloo'],
};

/** Where a case's numbers do not fit the model: what it asks stays the same. */
const adapted = {
  // Tokens are picked out of an answer, which must be long and varied: it may not end early, and a seed stands for greed.
  ...Object.fromEntries(list('C070 C072 C092 C108 C110').map((id) => [id, endless])),
  C045: (step) => (step.body.seed ? { ...step, body: { ...step.body, seed: 32 } } : step), // what it says repeats itself
  C051: copying,
  C154: (step) => ({ ...step, at_once: 8 }),
  C074: (step) => ({ ...step, body: { ...step.body, max_tokens: 400 } }), // a natural end, however long the answer
  C121(step, { facts }) { // an id above a small vocabulary becomes one within
    const ids = step.body.logprob_token_ids.map((id) => (typeof id === 'number' && id >= facts.VOCAB ? '{{tok: the}}' : id));
    return { ...step, body: { ...step.body, logprob_token_ids: ids } };
  },
};

function endless(step, { facts }) {
  if (step.path !== '/v1/completions') return step;
  const never = Object.fromEntries([facts.EOS, facts.BOS].map((id) => [id, -100]));
  return { ...step, body: { ...step.body, temperature: 1, seed: 11, logit_bias: never } };
}

/** The model says something of the prompt again, so that what is new in its answer can stand inside an accepted block. */
function copying(step) {
  return { ...step, body: { ...step.body, prompt: 'I like cats. The capital of Cuba is Havana. Yesterday was Saturday.' } };
}

function adapt(theCase, server) {
  const change = adapted[theCase.id];
  if (!change) return theCase;
  const request = stepsOf(theCase).map((step) => change(step, server));
  const check = theCase.expect.check.map((c) => (c.op === 'order' ? { ...c, ids: c.ids.map((id) => (id >= server.facts.VOCAB ? '{{tok: the}}' : id)) } : c));
  return { ...theCase, request, expect: { ...theCase.expect, check } };
}

async function judge(theCase, kind) {
  const kinds = kind === 'own' ? [] : [kind, ...(besides[theCase.id] ?? [])];
  try {
    const server = Object.fromEntries(await Promise.all(kinds.map(async (k) => [k, await started(k)])));
    const adaptedCase = adapt(theCase, server[kind]);
    const run = new Run(adaptedCase, (step) => server[named[step?.server] ?? kind] ?? server[kind]);
    if (judges[theCase.id]) return await judges[theCase.id]({ run, server, theCase });

    const { check } = adaptedCase.expect;
    const measures = check.filter(({ op }) => op === 'metric');
    let before, after;
    if (measures.length > 0) {
      if (measures.some(({ name }) => /rss|gpu/.test(name))) await server[kind].warm();
      if (theCase.id === 'C043') await new Run(adaptedCase, () => server[kind]).run(); // memory is at its height once
      before = await server[kind].sample();
      run.afterStep = async (step) => step === 'w' && (before = await server[kind].sample());
      run.beforeLeaving = async () => {
        if (stepsOf(adaptedCase).some((step) => step.read_bytes_per_s)) await server[kind].idle();
        after = await server[kind].sample();
      };
    }
    await run.run();
    for (const c of check) {
      if (c.op === 'metric') weigh(c, before, after, server[kind]);
      else await apply(run, c);
    }
    await extras[theCase.id]?.(run);
  } finally {
    for (const k of kinds) await done(k);
  }
}

function weigh({ name, min, max, eq, equal_across: equal }, before, after, { facts }) {
  assert.ok(name in metrics, `no judge for the metric ${name}`);
  const value = metrics[name](before, after);
  const limit = max === '64*VOCAB*4' ? 64 * facts.VOCAB * 4 : max;
  const what = `${name}: ${value}`;
  if (equal) assert.equal(new Set(value).size, 1, what);
  if (min !== undefined) assert.ok(value >= min, what);
  if (limit !== undefined) assert.ok(value <= limit, what);
  if (eq !== undefined) assert.equal(value, eq === 'baseline' ? 0 : eq, what);
  if (typeof value === 'number' && max !== undefined) console.log(what);
}

const cases = skip ? [] : fs.readFileSync(file, 'utf8').trim().split('\n').map(JSON.parse);
const byId = new Map(cases.map((theCase) => [theCase.id, theCase]));
const placed = new Map();
for (const [kind, ids] of [...lanes.flatMap((lane) => Object.entries(lane.cases)), ...Object.entries(measured)]) {
  for (const id of ids) placed.set(id, kind);
}

function declare(id, kind) {
  const theCase = byId.get(id);
  if (!theCase || (only && !only.includes(id))) return;
  if (kind !== 'own') for (const k of [kind, ...(besides[id] ?? [])]) announce(k);
  test(`${id} ${theCase.class}: ${theCase.expect.words}`, { timeout: 120_000 }, () => judge(theCase, kind));
}

test('every case has a place, and every place a case', { skip }, () => {
  for (const { id, expect } of cases) assert.ok(placed.has(id), `${id} has no place: ${expect.words}`);
  for (const id of placed.keys()) assert.ok(byId.has(id), `the file has no ${id}`);
  console.log(`${placed.size} of ${cases.length} cases are asked`);
});

describe('cases of the field', { skip, concurrency: lanes.length }, () => {
  for (const { name, together, cases: of } of lanes) {
    describe(name, { concurrency: together }, () => {
      for (const [kind, ids] of Object.entries(of)) for (const id of ids) declare(id, kind);
    });
  }
});
const neighbours = [
  ...['[true]', '[]', '{}', 'true', '[99999999999999999999]'].map((v) => [`{"prompt":"Hi","max_tokens":1,"logprobs":0,"logprob_token_ids":${v}}`, 'logprob_token_ids']),
  ...['[]', '"1"', '-1'].map((v) => [`{"prompt":"Hi","temperature":${v}}`, 'temperature']),
  ...['[1,"a"]', '[true]', '[1.5]', 'null', '{"a":1}', '""'].map((v) => [`{"prompt":${v},"max_tokens":2}`, 'prompt']),
  ...['-5', '0', '4294967296', '1.5', '99999999999999999999999'].map((v) => [`{"prompt":"Hi","max_tokens":${v}}`, 'max_tokens']),
  ['{"prompt":"Hi","n":0}', 'n'],
  [`{"prompt":${'['.repeat(5000)}${']'.repeat(5000)}}`, null],
  ['{"prompt":"\\ud800"}', null],
];
announce('main');
test('values beside those of the cases: 400, the field by name, and the next request works', async () => {
  const { cluster } = await started('main');
  try {
    for (const [body, param] of neighbours) {
      const reply = await cluster.post('/v1/completions', body);
      assert.equal(reply.status, 400, `${body.slice(0, 90)}: ${reply.text.slice(0, 200)}`);
      const { error } = reply.json();
      if (param && error.param) assert.ok(error.param.startsWith(param) || param === 'max_tokens', `${body.slice(0, 90)}: ${error.param}`);
      assert.ok(error.message.length > 0 && error.message.length <= 1000);
    }
    await cluster.complete({ prompt: 'Hi', max_tokens: 1 });
  } finally {
    await done('main');
  }
});
describe('cases that measure time', { skip, concurrency: 1 }, () => {
  for (const [kind, ids] of Object.entries(measured)) for (const id of ids) declare(id, kind);
});
