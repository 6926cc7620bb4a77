// franz-go: its program (see package deeds).
package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"raylog.test/clients/deeds"
)

const version = "1.22.3"

type client struct {
	servers []string
	admin   *kadm.Client
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return "error"
}

func main() {
	c := client{servers: strings.Split(os.Args[1], ",")}
	admin, err := kgo.NewClient(kgo.SeedBrokers(c.servers...))
	if err != nil {
		panic(err)
	}
	c.admin = kadm.NewClient(admin)
	deeds.Serve(map[string]deeds.Deed{
		"hello":          c.hello,
		"metadata":       c.metadata,
		"produce":        c.produce,
		"consume":        c.consume,
		"offset":         c.offset,
		"stream":         c.stream,
		"copy":           c.copy,
		"create_topic":   c.createTopic,
		"add_partitions": c.addPartitions,
		"delete_topic":   c.deleteTopic,
		"topic_config":   c.topicConfig,
		"alter_config":   c.alterConfig,
		"delete_records": c.deleteRecords,
	}, nameOf)
}

func (c client) hello(deeds.Request) (any, error) {
	return map[string]any{"version": version}, nil
}

func (c client) metadata(r deeds.Request) (any, error) {
	told, err := c.admin.Metadata(context.Background())
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for number, part := range told.Topics[r.Topic].Partitions {
		leaders[number] = part.Leader
	}
	return deeds.Metadata(len(told.Brokers), told.Topics.Names(), leaders), nil
}

func (c client) producer(more ...kgo.Opt) (*kgo.Client, error) {
	settings := []kgo.Opt{
		kgo.SeedBrokers(c.servers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	return kgo.NewClient(append(settings, more...)...)
}

func (c client) produce(r deeds.Request) (any, error) {
	settings := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[r.Codec]),
		kgo.ProducerBatchMaxBytes(r.Largest),
	}
	if !r.Idempotent {
		settings = append(settings, kgo.DisableIdempotentWrite())
	}
	producer, err := c.producer(settings...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	records := make([]*kgo.Record, len(r.Records))
	for at, one := range r.Records {
		records[at] = recordOf(r.Topic, one)
	}
	if err := producer.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for at, record := range records {
		offsets[at] = record.Offset
	}
	return deeds.Offsets(offsets), nil
}

func recordOf(topic string, one deeds.Record) *kgo.Record {
	record := &kgo.Record{Topic: topic, Partition: one.Partition, Key: one.Key, Value: one.Value}
	if one.Timestamp != 0 {
		record.Timestamp = time.UnixMilli(one.Timestamp)
	}
	for _, header := range one.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
	}
	return record
}

func (c client) consume(r deeds.Request) (any, error) {
	places := map[int32]kgo.Offset{}
	for number, place := range r.Places {
		if place == "earliest" {
			places[deeds.Partition(number)] = kgo.NewOffset().AtStart()
		} else {
			places[deeds.Partition(number)] = kgo.NewOffset().At(int64(place.(float64)))
		}
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(c.servers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: places}),
	)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := []deeds.Record{}
	for len(found) < r.Count {
		fetched := consumer.PollRecords(context.Background(), r.Count-len(found))
		if errs := fetched.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		fetched.EachRecord(func(record *kgo.Record) { found = append(found, seen(record)) })
		deeds.Progress(len(found))
	}
	return map[string]any{"records": found}, nil
}

func seen(record *kgo.Record) deeds.Record {
	one := deeds.Record{
		Partition: record.Partition,
		Offset:    record.Offset,
		Timestamp: record.Timestamp.UnixMilli(),
		Key:       record.Key,
		Value:     record.Value,
	}
	for _, header := range record.Headers {
		one.Headers = append(one.Headers, deeds.Header{Name: header.Key, Value: header.Value})
	}
	return one
}

func (c client) offset(r deeds.Request) (any, error) {
	list := func() (kadm.ListedOffsets, error) {
		switch at := r.At.(type) {
		case float64:
			return c.admin.ListOffsetsAfterMilli(context.Background(), int64(at), r.Topic)
		default:
			if at == "earliest" {
				return c.admin.ListStartOffsets(context.Background(), r.Topic)
			}
			return c.admin.ListEndOffsets(context.Background(), r.Topic)
		}
	}
	listed, err := list()
	if err != nil {
		return nil, err
	}
	found := listed[r.Topic][r.Partition]
	return deeds.Offset(found.Offset), found.Err
}

func (c client) stream(r deeds.Request) (any, error) {
	producer, err := c.producer()
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	send := func(batch []deeds.Record) []error {
		records := make([]*kgo.Record, len(batch))
		for at, one := range batch {
			records[at] = recordOf(r.Topic, one)
		}
		var errs []error
		for _, result := range producer.ProduceSync(context.Background(), records...) {
			if result.Err != nil {
				errs = append(errs, result.Err)
			}
		}
		return errs
	}
	return deeds.Stream(r, nameOf, send), nil
}

func (c client) copy(r deeds.Request) (any, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(c.servers...),
		kgo.TransactionalID(r.ID),
		kgo.ConsumerGroup(r.Group),
		kgo.ConsumeTopics(r.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	ctx := context.Background()
	given := kgo.Record{Topic: r.Target, Value: []byte("aborted")}
	if err := session.Begin(); err != nil {
		return nil, err
	}
	if err := session.ProduceSync(ctx, &given).FirstErr(); err != nil {
		return nil, err
	}
	if _, err := session.End(ctx, kgo.TryAbort); err != nil {
		return nil, err
	}
	for copied := 0; ; {
		fetched := session.PollRecords(ctx, r.Count)
		if errs := fetched.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		fetched.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: r.Target, Value: record.Value}, nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return nil, err
		}
		if committed {
			copied += fetched.NumRecords()
		}
		deeds.Progress(copied)
		if copied >= r.Count {
			return deeds.Copied(copied), nil
		}
	}
}

func (c client) createTopic(r deeds.Request) (any, error) {
	config := map[string]*string{}
	for name, value := range r.Config {
		config[name] = &value
	}
	_, err := c.admin.CreateTopic(context.Background(), r.Partitions, 1, config, r.Topic)
	return nil, err
}

func (c client) addPartitions(r deeds.Request) (any, error) {
	answers, err := c.admin.UpdatePartitions(context.Background(), int(r.Total), r.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers.Error()
}

func (c client) deleteTopic(r deeds.Request) (any, error) {
	_, err := c.admin.DeleteTopic(context.Background(), r.Topic)
	return nil, err
}

func (c client) topicConfig(r deeds.Request) (any, error) {
	told, err := c.admin.DescribeTopicConfigs(context.Background(), r.Topic)
	if err != nil {
		return nil, err
	}
	config := map[string]string{}
	for _, entry := range told[0].Configs {
		config[entry.Key] = entry.MaybeValue()
	}
	return config, told[0].Err
}

func (c client) alterConfig(r deeds.Request) (any, error) {
	var changes []kadm.AlterConfig
	for name, value := range r.Config {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	answers, err := c.admin.AlterTopicConfigs(context.Background(), changes, r.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

func (c client) deleteRecords(r deeds.Request) (any, error) {
	wanted := kadm.Offsets{}
	wanted.AddOffset(r.Topic, r.Partition, r.Before, -1)
	answers, err := c.admin.DeleteRecords(context.Background(), wanted)
	if err != nil {
		return nil, err
	}
	found := answers[r.Topic][r.Partition]
	return map[string]any{"low": found.LowWatermark}, found.Err
}
