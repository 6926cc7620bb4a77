// Package deeds is the loop of a client's program in Go: a deed a line in, what became of it a line
// out. The lines are described in tests/clients/program.py.
package deeds

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strconv"
)

const (
	streamBatch = 50
	longestLine = 64 << 20
)

// Request has the fields of all deeds.
type Request struct {
	Do         string            `json:"do"`
	Topic      string            `json:"topic"`
	Codec      string            `json:"codec"`
	Idempotent bool              `json:"idempotent"`
	Largest    int32             `json:"largest"`
	Records    []Record          `json:"records"`
	Places     map[string]any    `json:"places"`
	Count      int               `json:"count"`
	Partition  int32             `json:"partition"`
	Partitions int32             `json:"partitions"`
	At         any               `json:"at"`
	Until      string            `json:"until"`
	Config     map[string]string `json:"config"`
	Total      int32             `json:"total"`
	Before     int64             `json:"before"`
	Source     string            `json:"source"`
	Target     string            `json:"target"`
	Group      string            `json:"group"`
	ID         string            `json:"id"`
}

// Record is a record as it is written and read. JSON's base64 is that of []byte, and null is nil.
type Record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// Header is a pair: its JSON is an array of a name and a value.
type Header struct {
	Name  string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([2]any{h.Name, h.Value})
}

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[2]any{&h.Name, &h.Value})
}

// Lacks says that the client has no such deed, and why.
type Lacks struct{ Why string }

func (l Lacks) Error() string { return l.Why }

// Deed is one of the client's.
type Deed func(Request) (any, error)

// Serve does what the lines of standard input say, until its end.
func Serve(all map[string]Deed, nameOf func(error) string) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), longestLine)
	for lines.Scan() {
		var request Request
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			panic(err)
		}
		write(answer(all, request, nameOf))
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}

func answer(all map[string]Deed, request Request, nameOf func(error) string) any {
	deed, there := all[request.Do]
	if !there {
		return map[string]any{"lacks": "it has no " + request.Do}
	}
	done, err := deed(request)
	var lacks Lacks
	if errors.As(err, &lacks) {
		return map[string]any{"lacks": lacks.Why}
	}
	if err != nil {
		return map[string]any{"failed": nameOf(err), "words": err.Error()}
	}
	return map[string]any{"done": done}
}

func write(line any) {
	if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
		panic(err)
	}
}

// Stream sends numbers, batch by batch, until that file is there. send waits until a batch has
// ended, and gives the errors of its records.
func Stream(request Request, nameOf func(error) string, send func([]Record) []error) any {
	failures := []string{}
	acknowledged := 0
	for first := 0; !exists(request.Until); first += streamBatch {
		records := make([]Record, streamBatch)
		for at := range records {
			number := first + at
			records[at].Partition = int32(number) % request.Partitions
			records[at].Value = []byte(strconv.Itoa(number))
		}
		errs := send(records)
		for _, err := range errs {
			failures = append(failures, nameOf(err))
		}
		acknowledged += streamBatch - len(errs)
		Progress(first + streamBatch)
	}
	return map[string]any{"acknowledged": acknowledged, "failures": failures}
}

// Progress tells how many records there are by now.
func Progress(number int) { write(map[string]any{"progress": number}) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Partition is the number of a place.
func Partition(text string) int32 {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return int32(number)
}

// Offsets is the answer to produce.
func Offsets(offsets []int64) any { return map[string]any{"offsets": offsets} }

// Copied is the answer to copy.
func Copied(count int) any { return map[string]any{"copied": count} }

// Offset is the answer to offset.
func Offset(offset int64) any { return map[string]any{"offset": offset} }

// Metadata is the answer to metadata.
func Metadata(brokers int, topics []string, leaders map[int32]int32) any {
	return map[string]any{"brokers": brokers, "topics": topics, "leaders": leaders}
}
