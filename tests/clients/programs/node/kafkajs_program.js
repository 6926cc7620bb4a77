// kafkajs: its program (see deeds.js). Codecs other than gzip are packages of their own.

"use strict";

const kafkajs = require("kafkajs");
const { Lacks, progress, serve, messageOf, seen, stream } = require("./deeds.js");

const { CompressionTypes, CompressionCodecs, Kafka, logLevel } = kafkajs;
const GROUP = "kafkajs";
// Its own default, 5, ends after some ten seconds: a busy machine takes longer for a new process.
const RETRY = { retries: 30, initialRetryTime: 100, maxRetryTime: 1000 };
// It also repeats what is refused for good, as the deletion of a topic that is not there.
const ADMIN_RETRY = { retries: 5, initialRetryTime: 100, maxRetryTime: 1000 };

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
};

// By false, and not by an error, it tells that a topic is there already.
class IsThere extends Error {
  name = "false";
}

function nameOf(error) {
  for (let one = error; one; one = one.cause ?? one.originalError) {
    if (one.errors?.length) {
      return nameOf(one.errors[0]);
    }
    if (one.type) {
      return one.type;
    }
  }
  return error.name;
}

class Client {
  constructor(servers) {
    this.servers = servers.split(",");
    this.kafka = new Kafka({
      brokers: this.servers,
      logLevel: logLevel.NOTHING,
      retry: RETRY,
    });
    this.made = null;
    this.groups = 0;
  }

  async admin() {
    if (this.made === null) {
      this.made = this.kafka.admin({ retry: ADMIN_RETRY });
      await this.made.connect();
    }
    return this.made;
  }

  async hello() {
    return { version: require("kafkajs/package.json").version };
  }

  async metadata({ topic }) {
    const admin = await this.admin();
    const { brokers } = await admin.describeCluster();
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    const leaders = {};
    for (const part of topics[0].partitions) {
      leaders[part.partitionId] = part.leader;
    }
    return { brokers: brokers.length, topics: await admin.listTopics(), leaders };
  }

  async withProducer(idempotent, deed) {
    const settings = idempotent ? { idempotent: true, maxInFlightRequests: 1 } : {};
    const producer = this.kafka.producer({ ...settings, retry: RETRY });
    await producer.connect();
    try {
      return await deed(producer);
    } finally {
      await producer.disconnect();
    }
  }

  async produce({ topic, codec, idempotent, records }) {
    if (!(codec in CODECS)) {
      throw new Lacks(`it has no ${codec}`);
    }
    return this.withProducer(idempotent, async (producer) => {
      const messages = records.map(messageOf);
      const told = await producer.send({ topic, messages, compression: CODECS[codec] });
      const next = {};
      for (const part of told) {
        next[part.partition] = Number(part.baseOffset);
      }
      // It tells the first offset of a partition's batch; the others follow.
      return { offsets: records.map((record) => next[record.partition]++) };
    });
  }

  // It consumes by groups alone: by a new one each time, that is put to the places first. It would
  // stop at a batch of another client whose codec it does not have.
  async consume({ topic, places, count }) {
    const groupId = `${GROUP}-${this.groups++}`;
    const starts = await this.put(groupId, topic, places);
    const consumer = this.kafka.consumer({ groupId, retry: RETRY });
    const records = [];
    // Behind a rebalance it reads again what it has not committed: each offset counts once.
    const next = { ...starts };
    const take = (partition, message) => {
      if (!(partition in places) || Number(message.offset) < next[partition]) {
        return;
      }
      next[partition] = Number(message.offset) + 1;
      records.push(seen(partition, message));
      progress(records.length);
    };
    await consumer.connect();
    try {
      await consumer.subscribe({ topics: [topic], fromBeginning: true });
      await new Promise((resolve, reject) => {
        const eachMessage = async ({ partition, message }) => {
          take(partition, message);
          if (records.length >= count) {
            resolve();
          }
        };
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
        consumer.run({ eachMessage }).catch(reject);
      });
    } finally {
      await consumer.disconnect();
    }
    return { records: records.slice(0, count) };
  }

  // The group stands at the places, and at the ends of the topic's other partitions. By a new admin
  // client: one that has asked for a topic asks for it again for ever, also when that is deleted.
  async put(groupId, topic, places) {
    const admin = this.kafka.admin({ retry: RETRY });
    await admin.connect();
    try {
      const starts = {};
      for (const { partition, low, high } of await admin.fetchTopicOffsets(topic)) {
        const place = places[partition] ?? high;
        starts[partition] = Number(place === "earliest" ? low : place);
      }
      const partitions = Object.entries(starts).map(([partition, offset]) => ({
        partition: Number(partition),
        offset: String(offset),
      }));
      await admin.setOffsets({ groupId, topic, partitions });
      return starts;
    } finally {
      await admin.disconnect();
    }
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

  async copy({ source, target, group, id, count }) {
    const settings = { transactionalId: id, idempotent: true, maxInFlightRequests: 1, retry: RETRY };
    const producer = this.kafka.producer(settings);
    const consumer = this.kafka.consumer({ groupId: group, retry: RETRY });
    await producer.connect();
    await consumer.connect();
    try {
      const given = await producer.transaction();
      await given.send({ topic: target, messages: [{ value: "aborted" }] });
      await given.abort();
      let copied = 0;
      const copyBatch = async ({ batch }) => {
        const { topic, partition, messages } = batch;
        const transaction = await producer.transaction();
        try {
          await transaction.send({ topic: target, messages: messages.map(({ value }) => ({ value })) });
          const offset = String(Number(batch.lastOffset()) + 1);
          const topics = [{ topic, partitions: [{ partition, offset }] }];
          await transaction.sendOffsets({ consumerGroupId: group, topics });
          await transaction.commit();
        } catch (error) {
          await transaction.abort();
          throw error;
        }
        copied += messages.length;
        progress(copied);
      };
      await consumer.subscribe({ topics: [source], fromBeginning: true });
      await new Promise((resolve, reject) => {
        const eachBatch = async (given) => {
          await copyBatch(given);
          if (copied >= count) {
            resolve();
          }
        };
        consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
        consumer.run({ autoCommit: false, eachBatch }).catch(reject);
      });
      return { copied };
    } finally {
      await consumer.disconnect();
      await producer.disconnect();
    }
  }

  async stream({ topic, partitions, until }) {
    return this.withProducer(true, (producer) => {
      const send = (messages) => producer.send({ topic, messages });
      return stream(send, partitions, until, nameOf);
    });
  }

  async create_topic({ topic, partitions, config }) {
    const admin = await this.admin();
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries };
    if (!(await admin.createTopics({ topics: [wanted] }))) {
      throw new IsThere("createTopics is false");
    }
  }

  async add_partitions({ topic, total }) {
    const admin = await this.admin();
    await admin.createPartitions({ topicPartitions: [{ topic, count: total }] });
  }

  async delete_topic({ topic }) {
    const admin = await this.admin();
    await admin.deleteTopics({ topics: [topic] });
  }

  async topic_config({ topic }) {
    const admin = await this.admin();
    const resource = { type: kafkajs.ConfigResourceTypes.TOPIC, name: topic };
    const { resources } = await admin.describeConfigs({ resources: [resource] });
    const config = {};
    for (const entry of resources[0].configEntries) {
      config[entry.configName] = entry.configValue;
    }
    return config;
  }

  async alter_config({ topic, config }) {
    const admin = await this.admin();
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }));
    const resource = { type: kafkajs.ConfigResourceTypes.TOPIC, name: topic, configEntries };
    await admin.alterConfigs({ resources: [resource] });
  }

  async delete_records({ topic, partition, before }) {
    const admin = await this.admin();
    // It deletes records of topics alone whose metadata it has asked for before.
    await this.offset({ topic, partition, at: "earliest" });
    const partitions = [{ partition, offset: String(before) }];
    await admin.deleteTopicRecords({ topic, partitions });
    return { low: (await this.offset({ topic, partition, at: "earliest" })).offset };
  }
}

serve(new Client(process.argv[2]), nameOf);
