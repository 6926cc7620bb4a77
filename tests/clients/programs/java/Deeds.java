import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * kafka-clients, Kafka's own: its program. A deed a line in, what became of it a line out; the lines
 * are described in tests/clients/program.py.
 */
public final class Deeds {
    private static final int STREAM_BATCH = 50;
    private static final Duration POLL = Duration.ofSeconds(1);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String servers;
    private final Admin admin;

    private Deeds(String servers) {
        this.servers = servers;
        this.admin = Admin.create(settings());
    }

    public static void main(String[] arguments) throws IOException {
        Deeds deeds = new Deeds(arguments[0]);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            write(deeds.answer(JSON.readTree(line)));
        }
        System.exit(0);
    }

    private static void write(JsonNode line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void progress(int number) {
        write(JSON.createObjectNode().put("progress", number));
    }

    private ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            answer.set("done", done(request));
        } catch (UnsupportedOperationException lacks) {
            answer.put("lacks", lacks.getMessage());
        } catch (Exception error) {
            Throwable cause = causeOf(error);
            answer.put("failed", cause.getClass().getSimpleName());
            answer.put("words", String.valueOf(cause.getMessage()));
        }
        return answer;
    }

    private static Throwable causeOf(Throwable error) {
        return error instanceof ExecutionException ? error.getCause() : error;
    }

    private JsonNode done(JsonNode request) throws Exception {
        String deed = request.get("do").asText();
        switch (deed) {
            case "hello": return JSON.createObjectNode().put("version", AppInfoParser.getVersion());
            case "metadata": return metadata(request);
            case "produce": return produce(request);
            case "consume": return consume(request);
            case "offset": return offset(request);
            case "stream": return stream(request);
            case "copy": return copy(request);
            case "create_topic": return createTopic(request);
            case "add_partitions": return addPartitions(request);
            case "delete_topic": return deleteTopic(request);
            case "topic_config": return topicConfig(request);
            case "alter_config": return alterConfig(request);
            case "delete_records": return deleteRecords(request);
            default: throw new UnsupportedOperationException("it has no " + deed);
        }
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        return settings;
    }

    private JsonNode metadata(JsonNode request) throws Exception {
        String topic = topicOf(request);
        ObjectNode told = JSON.createObjectNode();
        told.put("brokers", admin.describeCluster().nodes().get().size());
        ArrayNode topics = told.putArray("topics");
        admin.listTopics().names().get().forEach(topics::add);
        ObjectNode leaders = told.putObject("leaders");
        var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        for (TopicPartitionInfo part : described.partitions()) {
            leaders.put(String.valueOf(part.partition()), part.leader().id());
        }
        return told;
    }

    private KafkaProducer<byte[], byte[]> producer(Properties settings) {
        settings.put("linger.ms", "20");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private JsonNode produce(JsonNode request) throws Exception {
        Properties settings = settings();
        settings.put("compression.type", request.get("codec").asText());
        settings.put("enable.idempotence", request.get("idempotent").asText());
        settings.put("max.request.size", request.get("largest").asText());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            for (JsonNode record : request.get("records")) {
                sent.add(producer.send(recordOf(topicOf(request), record)));
            }
        }
        ObjectNode told = JSON.createObjectNode();
        ArrayNode offsets = told.putArray("offsets");
        for (Future<RecordMetadata> one : sent) {
            offsets.add(one.get().offset());
        }
        return told;
    }

    private static ProducerRecord<byte[], byte[]> recordOf(String topic, JsonNode record)
            throws IOException {
        ProducerRecord<byte[], byte[]> one = new ProducerRecord<>(
                topic,
                record.get("partition").asInt(),
                record.get("timestamp").asLong(),
                record.get("key").binaryValue(),
                record.get("value").binaryValue());
        for (JsonNode header : record.get("headers")) {
            one.headers().add(header.get(0).asText(), header.get(1).binaryValue());
        }
        return one;
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        return new KafkaConsumer<>(
                settings(), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private JsonNode consume(JsonNode request) {
        int count = request.get("count").asInt();
        ObjectNode told = JSON.createObjectNode();
        ArrayNode records = told.putArray("records");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            Map<TopicPartition, JsonNode> places = new HashMap<>();
            request.get("places").fields().forEachRemaining(place -> places.put(
                    new TopicPartition(topicOf(request), Integer.parseInt(place.getKey())),
                    place.getValue()));
            consumer.assign(places.keySet());
            places.forEach((part, place) -> seek(consumer, part, place));
            while (records.size() < count) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    records.add(seen(record));
                }
                progress(records.size());
            }
        }
        return told;
    }

    private static void seek(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition part, JsonNode place) {
        if (place.isTextual()) {
            consumer.seekToBeginning(List.of(part));
        } else {
            consumer.seek(part, place.asLong());
        }
    }

    private static ObjectNode seen(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode one = JSON.createObjectNode();
        one.put("partition", record.partition());
        one.put("offset", record.offset());
        one.put("timestamp", record.timestamp());
        one.put("key", record.key());
        one.put("value", record.value());
        ArrayNode headers = one.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
        return one;
    }

    private JsonNode offset(JsonNode request) {
        TopicPartition part = partOf(request);
        JsonNode at = request.get("at");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            long offset;
            if (at.isNumber()) {
                OffsetAndTimestamp found =
                        consumer.offsetsForTimes(Map.of(part, at.asLong())).get(part);
                offset = found == null ? -1 : found.offset();
            } else if (at.asText().equals("earliest")) {
                offset = consumer.beginningOffsets(List.of(part)).get(part);
            } else {
                offset = consumer.endOffsets(List.of(part)).get(part);
            }
            return JSON.createObjectNode().put("offset", offset);
        }
    }

    private JsonNode stream(JsonNode request) throws InterruptedException {
        int partitions = request.get("partitions").asInt();
        Path until = Path.of(request.get("until").asText());
        ObjectNode told = JSON.createObjectNode();
        ArrayNode failures = told.putArray("failures");
        int acknowledged = 0;
        try (KafkaProducer<byte[], byte[]> producer = producer(settings())) {
            for (int first = 0; !Files.exists(until); first += STREAM_BATCH) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int number = first; number < first + STREAM_BATCH; number++) {
                    byte[] value = String.valueOf(number).getBytes(StandardCharsets.UTF_8);
                    sent.add(producer.send(new ProducerRecord<>(
                            topicOf(request), number % partitions, null, value)));
                }
                acknowledged += acknowledged(sent, failures);
                progress(first + STREAM_BATCH);
            }
        }
        return told.put("acknowledged", acknowledged);
    }

    private static int acknowledged(Collection<Future<RecordMetadata>> sent, ArrayNode failures)
            throws InterruptedException {
        int acknowledged = 0;
        for (Future<RecordMetadata> one : sent) {
            try {
                one.get();
                acknowledged++;
            } catch (ExecutionException error) {
                failures.add(error.getCause().getClass().getSimpleName());
            }
        }
        return acknowledged;
    }

    private JsonNode copy(JsonNode request) {
        String source = request.get("source").asText();
        String target = request.get("target").asText();
        int count = request.get("count").asInt();
        Properties writing = settings();
        writing.put("transactional.id", request.get("id").asText());
        Properties reading = settings();
        reading.put("group.id", request.get("group").asText());
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("isolation.level", "read_committed");
        int copied = 0;
        try (KafkaProducer<byte[], byte[]> producer = producer(writing);
                KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                        reading, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(target, "aborted".getBytes(StandardCharsets.UTF_8)));
            producer.flush();
            producer.abortTransaction();
            consumer.subscribe(List.of(source));
            while (copied < count) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                if (records.isEmpty()) {
                    progress(copied);
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(target, record.value()));
                    places.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(places, consumer.groupMetadata());
                producer.commitTransaction();
                copied += records.count();
                progress(copied);
            }
        }
        return JSON.createObjectNode().put("copied", copied);
    }

    private JsonNode createTopic(JsonNode request) throws Exception {
        NewTopic topic =
                new NewTopic(topicOf(request), request.get("partitions").asInt(), (short) 1);
        topic.configs(configOf(request));
        admin.createTopics(List.of(topic)).all().get();
        return JSON.nullNode();
    }

    private JsonNode addPartitions(JsonNode request) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(request.get("total").asInt());
        admin.createPartitions(Map.of(topicOf(request), total)).all().get();
        return JSON.nullNode();
    }

    private JsonNode deleteTopic(JsonNode request) throws Exception {
        admin.deleteTopics(List.of(topicOf(request))).all().get();
        return JSON.nullNode();
    }

    private static ConfigResource resourceOf(JsonNode request) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topicOf(request));
    }

    private JsonNode topicConfig(JsonNode request) throws Exception {
        ConfigResource resource = resourceOf(request);
        ObjectNode config = JSON.createObjectNode();
        for (ConfigEntry entry :
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            config.put(entry.name(), entry.value());
        }
        return config;
    }

    private JsonNode alterConfig(JsonNode request) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        configOf(request).forEach((name, value) -> changes.add(
                new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        admin.incrementalAlterConfigs(Map.of(resourceOf(request), changes)).all().get();
        return JSON.nullNode();
    }

    private JsonNode deleteRecords(JsonNode request) throws Exception {
        TopicPartition part = partOf(request);
        RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before").asLong());
        var deleted = admin.deleteRecords(Map.of(part, before)).lowWatermarks().get(part).get();
        return JSON.createObjectNode().put("low", deleted.lowWatermark());
    }

    private static String topicOf(JsonNode request) {
        return request.get("topic").asText();
    }

    private static TopicPartition partOf(JsonNode request) {
        return new TopicPartition(topicOf(request), request.get("partition").asInt());
    }

    private static Map<String, String> configOf(JsonNode request) {
        Map<String, String> config = new HashMap<>();
        request.get("config").fields().forEachRemaining(
                entry -> config.put(entry.getKey(), entry.getValue().asText()));
        return config;
    }
}
