// The command line: what a person sees of helios-launch and its siblings.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { Cluster, bin, demo } from './support.mjs';

const run = (name, ...args) => spawnSync(path.join(bin, name), args, { encoding: 'utf8', timeout: 20_000 });

for (const name of ['helios-launch', 'helios-coordinator', 'helios-worker', 'helios-bench']) {
  test(`${name} --help fits a screen`, () => {
    const { status, stdout } = run(name, '--help');
    assert.equal(status, 0);
    const lines = stdout.trimEnd().split('\n');
    assert.ok(lines.length <= 50, `${lines.length} lines`);
    assert.ok(lines.every((line) => line.length <= 120));
    assert.match(stdout, /--model/);
  });
  test(`${name}: an unknown flag is one line and exit code 2`, () => {
    const { status, stderr, stdout } = run(name, '--no-such-flag');
    assert.equal(status, 2);
    assert.equal(stderr.trimEnd().split('\n').length, 1, stderr);
    assert.match(stderr, /no-such-flag/);
    assert.equal(stdout, '');
  });
}

test('contradictory flags are one line and exit code 2', () => {
  for (const args of [['--nproc', '3'], ['--nproc', 'two'], ['--port', '70000'], ['--dtype', 'int8'], ['--max-logprobs', '21'],
    ['--nnodes', '2', '--node-rank', '2']]) {
    const { status, stderr } = run('helios-launch', '--model', demo, ...args);
    assert.equal(status, 2, `${args}: ${stderr}`);
    assert.equal(stderr.trimEnd().split('\n').length, 1, stderr);
  }
});

test('a missing or broken model ends the launcher with the reason', () => {
  const broken = fs.mkdtempSync(path.join(os.tmpdir(), 'helios-broken-'));
  try {
    for (const file of ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'generation_config.json']) {
      fs.copyFileSync(path.join(demo, file), path.join(broken, file));
    }
    fs.writeFileSync(path.join(broken, 'model.safetensors'), 'not a model');
    const corrupt = run('helios-launch', '--model', broken, '--port', '0');
    assert.equal(corrupt.status, 1, corrupt.stderr);
    assert.match(corrupt.stderr, /model\.safetensors/);
    const absent = run('helios-launch', '--model', path.join(broken, 'nowhere'), '--port', '0');
    assert.notEqual(absent.status, 0);
    assert.match(absent.stderr, /nowhere/);
  } finally {
    fs.rmSync(broken, { recursive: true });
  }
});

test('--max-logprobs 0 serves without logprobs and says so', async () => {  // R34
  const cluster = await Cluster.start({ nproc: 1, args: ['--max-logprobs', '0'] });
  try {
    assert.equal((await cluster.get('/v1/models')).json().data[0].permission[0].allow_logprobs, false);
    const refused = await cluster.post('/v1/completions', { prompt: 'x', logprobs: 0 });
    assert.equal(refused.status, 400);
    assert.equal(refused.json().error.param, 'logprobs');
    await cluster.complete({ prompt: 'x', max_tokens: 1 });
  } finally {
    await cluster.stop();
  }
});

test('an API key guards /v1 and nothing else', async () => {
  const cluster = await Cluster.start({ nproc: 1, args: ['--api-key', 'secret'] });
  try {
    const body = { prompt: 'x', max_tokens: 1 };
    assert.equal((await cluster.post('/v1/completions', body)).status, 401);
    assert.equal((await cluster.post('/v1/completions', body, { headers: { authorization: 'Bearer wrong' } })).status, 401);
    assert.equal((await cluster.post('/v1/completions', body, { headers: { authorization: 'Bearer secret' } })).status, 200);
    assert.equal((await cluster.get('/health')).status, 200);
  } finally {
    await cluster.stop();
  }
});

test('the same bits at 1, 2, 4 and 8 ranks, and over Gloo', async () => {  // X1
  const body = { prompt: 'Once upon a time', max_tokens: 24, temperature: 0.8, seed: 5, logprobs: 20 };
  const replies = [];
  for (const [nproc, ...args] of [[1], [2], [4], [8, '--threads-per-rank', '1'], [2, '--collective', 'gloo']]) {
    const cluster = await Cluster.start({ nproc, args });
    try {
      replies.push((await cluster.complete(body)).choices);
    } finally {
      await cluster.stop();
    }
  }
  for (const choices of replies.slice(1)) assert.deepEqual(choices, replies[0]);
});
