// What happens when ranks die, hang, or the cluster is asked to stop: real signals to real processes.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cluster, alive, children, eventually, events, sleep } from './support.mjs';

const long = { prompt: 'Once upon a time', max_tokens: 1900, ignore_eos: true, temperature: 1, logprobs: 1 };

/** All processes below the launcher are gone. */
async function nothingLeft(pids) {
  await eventually('every process has ended', () => pids.every((pid) => !alive(pid)), 5_000);
}

for (const [name, signal, noticedWithin] of [['killed', 'SIGKILL', 2_000], ['stopped', 'SIGSTOP', 5_000]]) {
  test(`a ${name} rank: readiness off, requests answered, service back`, async () => {
    const cluster = await Cluster.start({ args: ['--max-num-seqs', '4'] });
    try {
      const coordinator = children(cluster.process.pid);
      const before = await cluster.ranks();
      const stream = cluster.post('/v1/completions', { ...long, stream: true });
      const plain = cluster.post('/v1/completions', { ...long, max_tokens: 1800 });
      await eventually('both run', async () => (await cluster.metric('vllm:num_requests_running')) === 2);

      const begin = Date.now();
      process.kill(before[1].pid, signal);
      await eventually('readiness is off', async () => (await cluster.health()).status === 503, noticedWithin);
      const noticed = Date.now() - begin;

      const answered = await plain;
      assert.equal(answered.status, 503, answered.text.slice(0, 200));
      assert.equal(answered.json().error.type, 'ServiceUnavailableError');
      const streamed = await stream;
      if (streamed.status === 200) {
        const all = events(streamed.text);
        assert.equal(all.at(-1), '[DONE]');
        assert.equal(all.at(-2).error.code, 503);
      } else {  // it had not begun: still time for a real status
        assert.equal(streamed.status, 503, streamed.text);
      }

      await eventually('service is back', async () => (await cluster.health()).status === 200, 20_000);
      const after = await cluster.ranks();
      assert.notEqual(after[1].pid, before[1].pid);
      assert.equal(alive(before[1].pid), false, 'the old rank is gone');
      assert.ok(children(cluster.process.pid).some((pid) => coordinator.includes(pid)), 'the coordinator was not restarted');
      const again = await cluster.complete({ prompt: 'A banana is', max_tokens: 4, temperature: 0, logprobs: 1 });
      assert.equal(again.choices[0].logprobs.tokens.length, 4);
      assert.match(cluster.stdout, /^ready http:\/\/\S+\n$/, 'stdout holds the ready line and nothing else');
      console.log(`# ${name}: noticed after ${noticed} ms, back after ${Date.now() - begin} ms`);
    } finally {
      await cluster.stop();
    }
  });
}

test('SIGTERM drains: what runs is finished, what comes is refused, nothing is left', async () => {
  const cluster = await Cluster.start();
  const pids = children(cluster.process.pid);
  assert.equal(pids.length, 3);
  const running = cluster.post('/v1/completions', { ...long, max_tokens: 400 });
  await eventually('it runs', async () => (await cluster.metric('vllm:num_requests_running')) === 1);
  const stopped = cluster.stop();
  const answered = await running;
  assert.equal(answered.status, 200, answered.text.slice(0, 200));
  assert.equal(answered.json().usage.completion_tokens, 400);
  assert.deepEqual(await stopped, { code: 0, signal: null }, cluster.log);
  await nothingLeft(pids);
});

test('a second SIGTERM ends at once', async () => {
  const cluster = await Cluster.start();
  const pids = children(cluster.process.pid);
  const running = cluster.post('/v1/completions', long).catch(() => null);
  await eventually('it runs', async () => (await cluster.metric('vllm:num_requests_running')) === 1);
  cluster.process.kill('SIGTERM');
  await sleep(100);
  const begin = Date.now();
  await cluster.stop('SIGTERM');
  assert.ok(Date.now() - begin < 3_000);
  await nothingLeft(pids);
  await running;
});

test('a killed launcher leaves nothing running', async () => {
  const cluster = await Cluster.start();
  const pids = children(cluster.process.pid);
  cluster.process.kill('SIGKILL');
  await cluster.exited;
  await nothingLeft(pids);
});

test('a full queue answers 429 and says when to come again', async () => {
  const cluster = await Cluster.start({ nproc: 1, args: ['--max-num-seqs', '1'] });
  try {
    const controller = new AbortController();
    const flood = Array.from({ length: 1400 }, () =>
      cluster.post('/v1/completions', { ...long, n: 1 }, { signal: controller.signal }).catch(() => null));
    const refused = await eventually('a 429', async () => {
      const reply = await cluster.post('/v1/completions', { prompt: Array(1000).fill('x'), max_tokens: 1 });
      return reply.status === 429 && reply;
    });
    assert.equal(refused.json().error.type, 'RateLimitError');
    assert.ok(Number(refused.headers.get('retry-after')) >= 1);
    controller.abort();
    await Promise.all(flood);
    await eventually('all slots and queue places are free', async () =>
      (await cluster.metric('vllm:num_requests_running')) === 0 && (await cluster.metric('vllm:num_requests_waiting')) === 0, 15_000);
    await cluster.complete({ prompt: 'x', max_tokens: 1 });
  } finally {
    await cluster.stop();
  }
});
