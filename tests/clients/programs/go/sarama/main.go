// sarama: its program (see package deeds).
package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"raylog.test/clients/deeds"
)

const (
	version = "1.61.1"
	// A busy machine takes a while for a new process; sarama's own default ends after 0.3 s.
	retries = 600
)

type client struct{ servers []string }

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

var names = map[sarama.KError]string{
	sarama.ErrMessageSizeTooLarge:     "ErrMessageSizeTooLarge",
	sarama.ErrTopicAlreadyExists:      "ErrTopicAlreadyExists",
	sarama.ErrUnknownTopicOrPartition: "ErrUnknownTopicOrPartition",
}

func nameOf(err error) string {
	var many sarama.ProducerErrors
	if errors.As(err, &many) {
		return nameOf(many[0].Err)
	}
	var code sarama.KError
	if errors.As(err, &code) && names[code] != "" {
		return names[code]
	}
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		return names[topic.Err]
	}
	return "error"
}

func main() {
	c := client{servers: strings.Split(os.Args[1], ",")}
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

// config is of the newest version that sarama knows; idempotence asks for one request at a time.
func config(idempotent bool) *sarama.Config {
	settings := sarama.NewConfig()
	settings.Version = sarama.MaxVersion
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Producer.Return.Successes = true
	settings.Producer.Flush.Frequency = 20 * time.Millisecond
	settings.Producer.Retry.Max = retries
	settings.Producer.Idempotent = idempotent
	if idempotent {
		settings.Net.MaxOpenRequests = 1
	}
	return settings
}

func (c client) hello(deeds.Request) (any, error) {
	return map[string]any{"version": version}, nil
}

func (c client) metadata(r deeds.Request) (any, error) {
	connected, err := sarama.NewClient(c.servers, config(false))
	if err != nil {
		return nil, err
	}
	defer connected.Close()
	topics, err := connected.Topics()
	if err != nil {
		return nil, err
	}
	parts, err := connected.Partitions(r.Topic)
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for _, number := range parts {
		leader, err := connected.Leader(r.Topic, number)
		if err != nil {
			return nil, err
		}
		leaders[number] = leader.ID()
	}
	return deeds.Metadata(len(connected.Brokers()), topics, leaders), nil
}

func (c client) produce(r deeds.Request) (any, error) {
	settings := config(r.Idempotent)
	settings.Producer.Compression = codecs[r.Codec]
	settings.Producer.MaxMessageBytes = int(r.Largest)
	producer, err := sarama.NewSyncProducer(c.servers, settings)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := messagesOf(r.Topic, r.Records)
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(messages))
	for at, message := range messages {
		offsets[at] = message.Offset
	}
	return deeds.Offsets(offsets), nil
}

func messagesOf(topic string, records []deeds.Record) []*sarama.ProducerMessage {
	messages := make([]*sarama.ProducerMessage, len(records))
	for at, one := range records {
		message := &sarama.ProducerMessage{Topic: topic, Partition: one.Partition}
		if one.Key != nil {
			message.Key = sarama.ByteEncoder(one.Key)
		}
		if one.Value != nil {
			message.Value = sarama.ByteEncoder(one.Value)
		}
		if one.Timestamp != 0 {
			message.Timestamp = time.UnixMilli(one.Timestamp)
		}
		for _, header := range one.Headers {
			pair := sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value}
			message.Headers = append(message.Headers, pair)
		}
		messages[at] = message
	}
	return messages
}

func (c client) consume(r deeds.Request) (any, error) {
	consumer, err := sarama.NewConsumer(c.servers, config(false))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	arrived := make(chan *sarama.ConsumerMessage)
	enough := make(chan struct{})
	defer close(enough)
	for number, place := range r.Places {
		offset := sarama.OffsetOldest
		if place != "earliest" {
			offset = int64(place.(float64))
		}
		part, err := consumer.ConsumePartition(r.Topic, deeds.Partition(number), offset)
		if err != nil {
			return nil, err
		}
		defer part.AsyncClose()
		go forward(part, arrived, enough)
	}
	found := []deeds.Record{}
	for len(found) < r.Count {
		found = append(found, seen(<-arrived))
		deeds.Progress(len(found))
	}
	return map[string]any{"records": found}, nil
}

func forward(
	part sarama.PartitionConsumer, arrived chan<- *sarama.ConsumerMessage, enough <-chan struct{},
) {
	for message := range part.Messages() {
		select {
		case arrived <- message:
		case <-enough:
			return
		}
	}
}

func seen(message *sarama.ConsumerMessage) deeds.Record {
	one := deeds.Record{
		Partition: message.Partition,
		Offset:    message.Offset,
		Timestamp: message.Timestamp.UnixMilli(),
		Key:       message.Key,
		Value:     message.Value,
	}
	for _, header := range message.Headers {
		one.Headers = append(one.Headers, deeds.Header{Name: string(header.Key), Value: header.Value})
	}
	return one
}

func (c client) offset(r deeds.Request) (any, error) {
	connected, err := sarama.NewClient(c.servers, config(false))
	if err != nil {
		return nil, err
	}
	defer connected.Close()
	at := sarama.OffsetNewest
	switch place := r.At.(type) {
	case float64:
		at = int64(place)
	case string:
		if place == "earliest" {
			at = sarama.OffsetOldest
		}
	}
	offset, err := connected.GetOffset(r.Topic, r.Partition, at)
	return deeds.Offset(offset), err
}

func (c client) stream(r deeds.Request) (any, error) {
	producer, err := sarama.NewSyncProducer(c.servers, config(true))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	send := func(batch []deeds.Record) []error {
		err := producer.SendMessages(messagesOf(r.Topic, batch))
		var many sarama.ProducerErrors
		if errors.As(err, &many) {
			errs := make([]error, len(many))
			for at, one := range many {
				errs[at] = one.Err
			}
			return errs
		}
		if err != nil {
			return []error{err}
		}
		return nil
	}
	return deeds.Stream(r, nameOf, send), nil
}

func (c client) withAdmin(deed func(sarama.ClusterAdmin) (any, error)) (any, error) {
	admin, err := sarama.NewClusterAdmin(c.servers, config(false))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return deed(admin)
}

// copying is what a member of the group does with the records of a partition.
type copying struct {
	request  deeds.Request
	producer sarama.SyncProducer
	copied   int
	done     context.CancelFunc
	err      error
	lock     sync.Mutex
}

func (*copying) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*copying) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copying) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, there := <-claim.Messages():
			if !there {
				return nil
			}
			c.one(message)
		case <-session.Context().Done():
			return nil
		}
	}
}

func (c *copying) one(message *sarama.ConsumerMessage) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.err == nil {
		c.err = c.copy(message)
	}
	if c.err != nil || c.copied >= c.request.Count {
		c.done()
	}
}

func (c *copying) copy(message *sarama.ConsumerMessage) error {
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	record := sarama.ProducerMessage{Topic: c.request.Target, Value: sarama.ByteEncoder(message.Value)}
	if _, _, err := c.producer.SendMessage(&record); err != nil {
		return err
	}
	if err := c.producer.AddMessageToTxn(message, c.request.Group, nil); err != nil {
		return err
	}
	if err := c.producer.CommitTxn(); err != nil {
		return err
	}
	c.copied++
	deeds.Progress(c.copied)
	return nil
}

func (c client) copy(r deeds.Request) (any, error) {
	settings := config(true)
	settings.Producer.Transaction.ID = r.ID
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	producer, err := sarama.NewSyncProducer(c.servers, settings)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return nil, err
	}
	given := sarama.ProducerMessage{Topic: r.Target, Value: sarama.StringEncoder("aborted")}
	if _, _, err := producer.SendMessage(&given); err != nil {
		return nil, err
	}
	if err := producer.AbortTxn(); err != nil {
		return nil, err
	}
	group, err := sarama.NewConsumerGroup(c.servers, r.Group, settings)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, done := context.WithCancel(context.Background())
	work := copying{request: r, producer: producer, done: done}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{r.Source}, &work); err != nil {
			return nil, err
		}
	}
	return deeds.Copied(work.copied), work.err
}

func (c client) createTopic(r deeds.Request) (any, error) {
	entries := map[string]*string{}
	for name, value := range r.Config {
		entries[name] = &value
	}
	detail := &sarama.TopicDetail{
		NumPartitions: r.Partitions, ReplicationFactor: 1, ConfigEntries: entries,
	}
	return c.withAdmin(func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.CreateTopic(r.Topic, detail, false)
	})
}

func (c client) addPartitions(r deeds.Request) (any, error) {
	return c.withAdmin(func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.CreatePartitions(r.Topic, r.Total, nil, false)
	})
}

func (c client) deleteTopic(r deeds.Request) (any, error) {
	return c.withAdmin(func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.DeleteTopic(r.Topic)
	})
}

func (c client) topicConfig(r deeds.Request) (any, error) {
	return c.withAdmin(func(admin sarama.ClusterAdmin) (any, error) {
		resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: r.Topic}
		entries, err := admin.DescribeConfig(resource)
		config := map[string]string{}
		for _, entry := range entries {
			config[entry.Name] = entry.Value
		}
		return config, err
	})
}

func (c client) alterConfig(r deeds.Request) (any, error) {
	changes := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range r.Config {
		changes[name] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value,
		}
	}
	return c.withAdmin(func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, r.Topic, changes, false)
	})
}

// deleteRecords: sarama does not tell the new first offset, so it is looked up.
func (c client) deleteRecords(r deeds.Request) (any, error) {
	_, err := c.withAdmin(func(admin sarama.ClusterAdmin) (any, error) {
		return nil, admin.DeleteRecords(r.Topic, map[int32]int64{r.Partition: r.Before})
	})
	if err != nil {
		return nil, err
	}
	connected, err := sarama.NewClient(c.servers, config(false))
	if err != nil {
		return nil, err
	}
	defer connected.Close()
	low, err := connected.GetOffset(r.Topic, r.Partition, sarama.OffsetOldest)
	return map[string]any{"low": low}, err
}
