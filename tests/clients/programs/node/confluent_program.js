// @confluentinc/kafka-javascript, which is librdkafka: its program (see deeds.js). It writes and
// administers by the API that is kafkajs's, and reads by the one of node-rdkafka: that one alone
// reads partitions without a group.

"use strict";

const confluent = require("@confluentinc/kafka-javascript");
const { serve, messageOf, progress, seen, stream } = require("./deeds.js");

const { Kafka, ErrorCodes, logLevel } = confluent.KafkaJS;
const { KafkaConsumer } = confluent;
const POLL_MS = 500;
const PLACES = { earliest: -2 }; // librdkafka's RD_KAFKA_OFFSET_BEGINNING

function nameOf(error) {
  const names = Object.keys(ErrorCodes).filter((name) => ErrorCodes[name] === error.code);
  return names[0] ?? error.name;
}

// A call of the older API, which ends in a callback.
function called(call) {
  return new Promise((resolve, reject) => {
    call((error, result) => (error ? reject(error) : resolve(result)));
  });
}

class Client {
  constructor(servers) {
    this.servers = servers;
    const kafkaJS = { brokers: servers.split(","), logLevel: logLevel.NOTHING };
    this.kafka = new Kafka({ kafkaJS });
    this.made = null;
  }

  async admin() {
    if (this.made === null) {
      this.made = this.kafka.admin();
      await this.made.connect();
    }
    return this.made;
  }

  async hello() {
    const { version } = require("@confluentinc/kafka-javascript/package.json");
    return { version: `${version}, librdkafka ${confluent.librdkafkaVersion}` };
  }

  async metadata({ topic }) {
    const admin = await this.admin();
    const leaders = {};
    const [described] = await admin.fetchTopicMetadata({ topics: [topic] });
    for (const part of described.partitions) {
      leaders[part.partitionId] = part.leader;
    }
    const consumer = await this.consumer();
    const { brokers } = await called((done) => consumer.getMetadata({ topic }, done));
    await called((done) => consumer.disconnect(done));
    return { brokers: brokers.length, topics: await admin.listTopics(), leaders };
  }

  async withProducer(settings, deed) {
    const producer = this.kafka.producer({ "linger.ms": 20, ...settings });
    await producer.connect();
    try {
      return await deed(producer);
    } finally {
      await producer.disconnect();
    }
  }

  async produce({ topic, codec, idempotent, largest, records }) {
    const settings = {
      "compression.codec": codec,
      "enable.idempotence": idempotent,
      "message.max.bytes": largest,
    };
    return this.withProducer(settings, async (producer) => {
      const told = await producer.send({ topic, messages: records.map(messageOf) });
      const next = {};
      for (const part of told) {
        next[part.partition] = Number(part.baseOffset);
      }
      // It tells the first offset of a partition; the others follow.
      return { offsets: records.map((record) => next[record.partition]++) };
    });
  }

  async consumer() {
    const consumer = new KafkaConsumer({
      "bootstrap.servers": this.servers,
      "group.id": "none",
      "enable.auto.commit": false,
    });
    await called((done) => consumer.connect({}, done));
    consumer.setDefaultConsumeTimeout(POLL_MS);
    return consumer;
  }

  async consume({ topic, places, count }) {
    const consumer = await this.consumer();
    const wanted = Object.entries(places).map(([number, place]) => ({
      topic,
      partition: Number(number),
      offset: PLACES[place] ?? place,
    }));
    consumer.assign(wanted);
    const records = [];
    while (records.length < count) {
      const messages = await called((done) => consumer.consume(count - records.length, done));
      for (const message of messages) {
        // Each header is an object with one name.
        const headers = message.headers ?? [];
        const pairs = headers.flatMap((one) => Object.entries(one));
        const one = seen(message.partition, { ...message, headers: {} });
        one.headers = pairs.map(([name, value]) => [name, Buffer.from(value).toString("base64")]);
        records.push(one);
      }
      progress(records.length);
    }
    await called((done) => consumer.disconnect(done));
    return { records };
  }

  async offset({ topic, partition, at }) {
    const admin = await this.admin();
    if (typeof at === "number") {
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, at);
      return { offset: Number(found.find((part) => part.partition === partition).offset) };
    }
    const found = await admin.fetchTopicOffsets(topic);
    const part = found.find((one) => one.partition === partition);
    return { offset: Number(at === "earliest" ? part.low : part.high) };
  }

  async stream({ topic, partitions, until }) {
    return this.withProducer({ "enable.idempotence": true }, (producer) => {
      const send = (messages) => producer.send({ topic, messages });
      return stream(send, partitions, until, nameOf);
    });
  }

  async create_topic({ topic, partitions, config }) {
    const admin = await this.admin();
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries };
    if (!(await admin.createTopics({ topics: [wanted] }))) {
      throw Object.assign(new Error("createTopics is false"), { name: "false" });
    }
  }

  async delete_topic({ topic }) {
    const admin = await this.admin();
    await admin.deleteTopics({ topics: [topic] });
  }

  async delete_records({ topic, partition, before }) {
    const admin = await this.admin();
    const partitions = [{ partition, offset: String(before) }];
    const [deleted] = await admin.deleteTopicRecords({ topic, partitions });
    return { low: deleted.lowWatermark };
  }
}

serve(new Client(process.argv[2]), nameOf);
