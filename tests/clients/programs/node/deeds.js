// The loop of a client's program in JavaScript: a deed a line in, what became of it a line out.
//
// The lines are described in tests/clients/program.py. A deed is a method of the client; one that
// it does not have is answered with "lacks".

"use strict";

const fs = require("fs");
const readline = require("readline");

const STREAM_BATCH = 50;

class Lacks extends Error {}

function write(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}

function progress(number) {
  write({ progress: number });
}

async function answerOf(client, request, nameOf) {
  const { do: deed, ...fields } = request;
  if (typeof client[deed] !== "function") {
    return { lacks: `it has no ${deed}` };
  }
  try {
    return { done: (await client[deed](fields)) ?? null };
  } catch (error) {
    if (error instanceof Lacks) {
      return { lacks: error.message };
    }
    return { failed: nameOf(error), words: String(error.message) };
  }
}

async function serve(client, nameOf) {
  const lines = readline.createInterface({ input: process.stdin, crlfDelay: Infinity });
  for await (const line of lines) {
    write(await answerOf(client, JSON.parse(line), nameOf));
  }
  process.exit(0);
}

function decoded(text) {
  return text === null ? null : Buffer.from(text, "base64");
}

function encoded(value) {
  return value === null || value === undefined ? null : Buffer.from(value).toString("base64");
}

// Headers as both clients take them: a name, and one value or several. The order of different
// names is that of the object.
function headersOf(pairs) {
  const headers = {};
  for (const [name, value] of pairs) {
    const bytes = decoded(value);
    headers[name] = name in headers ? [].concat(headers[name], [bytes]) : bytes;
  }
  return headers;
}

function pairsOf(headers) {
  const pairs = [];
  for (const [name, value] of Object.entries(headers ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      pairs.push([name, encoded(one)]);
    }
  }
  return pairs;
}

function messageOf(record) {
  return {
    key: decoded(record.key),
    value: decoded(record.value),
    partition: record.partition,
    timestamp: String(record.timestamp),
    headers: headersOf(record.headers),
  };
}

function seen(partition, message) {
  return {
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: encoded(message.key),
    value: encoded(message.value),
    headers: pairsOf(message.headers),
  };
}

// Sends numbers, batch by batch, until that file is there. `send` takes messages.
async function stream(send, partitions, until, nameOf) {
  const failures = [];
  let acknowledged = 0;
  for (let first = 0; !fs.existsSync(until); first += STREAM_BATCH) {
    const messages = [];
    for (let number = first; number < first + STREAM_BATCH; number += 1) {
      messages.push({ key: null, value: String(number), partition: number % partitions });
    }
    try {
      await send(messages);
      acknowledged += messages.length;
    } catch (error) {
      failures.push(nameOf(error));
    }
    progress(first + STREAM_BATCH);
  }
  return { acknowledged, failures };
}

module.exports = { Lacks, serve, messageOf, progress, seen, stream };
