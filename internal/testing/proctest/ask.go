package proctest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier"
)

// NewClient returns an HTTP client with a timeout of 20 s that uses no proxy.
func NewClient() *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, DisableCompression: true, Proxy: nil,
	}}
}

// TryGet returns the status and the body of the answer. The error comes from the transport.
func (s *Process) TryGet(path string) (int, []byte, error) {
	return read(s.HTTP.Get(s.Base + path))
}

func read(res *http.Response, err error) (int, []byte, error) {
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// Send sends a request with further headers, name and value in turn, and reads the answer. A POST
// is JSON unless they name another type. The error comes from the transport.
func Send(client *http.Client, method, url, body string, headers ...string) (
	res *http.Response, text string, err error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for h := range slices.Chunk(headers, 2) {
		req.Header.Set(h[0], h[1])
	}
	res, err = client.Do(req)
	_, all, err := read(res, err)
	return res, string(all), err
}

// Get is TryGet, but ends the test if there is no answer.
func (s *Process) Get(path string) (int, []byte) {
	s.T.Helper()
	status, body, err := s.TryGet(path)
	if err != nil {
		s.T.Fatalf("GET %s: %v", path, err)
	}
	return status, body
}

// Post returns the status and the body of the answer. The error comes from the transport.
func (s *Process) Post(path, body string) (int, []byte, error) {
	return post(s.HTTP, s.Base+path, body)
}

func post(client *http.Client, url, body string) (int, []byte, error) {
	return read(client.Post(url, "application/json", strings.NewReader(body)))
}

// MustPost is Post, but ends the test unless the status is 200.
func (s *Process) MustPost(path, body string) []byte {
	s.T.Helper()
	status, out, err := s.Post(path, body)
	if err != nil || status != http.StatusOK {
		s.T.Fatalf("POST %s %s: %d %s %v", path, body, status, out, err)
	}
	return out
}

// Ask decodes the answer to a GET, or to a POST if there is a body. A status other than 200 is an
// error.
func (s *Process) Ask(path, body string, into any) error {
	var status int
	var text []byte
	var err error
	if body == "" {
		status, text, err = s.TryGet(path)
	} else {
		status, text, err = s.Post(path, body)
	}
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", path, body, status, text)
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// Metric returns the sum of all samples of a metric whose labels contain the given text.
func (s *Process) Metric(name, labels string) int64 {
	s.T.Helper()
	_, body := s.Get("/metrics")
	sum, found := 0.0, false
	for line := range strings.Lines(string(body)) {
		sample, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		base, its, _ := strings.Cut(sample, "{")
		if !ok || base != name || !strings.Contains(its, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.T.Fatalf("metric %s: %v", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		s.T.Fatalf("there is no metric %s{%s}", name, labels)
	}
	return int64(sum)
}

// Pending returns the number of buckets that Redis has not acknowledged.
func (s *Process) Pending() int64 { s.T.Helper(); return s.Metric("twotier_pending_buckets", "") }

// Flushed waits until nothing is pending.
func (s *Process) Flushed() {
	s.T.Helper()
	Until(s.T, "nothing is pending", func() bool { return s.Pending() == 0 })
}

// Answer has the fields of an answer that tests check.
type Answer struct {
	Key      string
	Allowed  bool
	Source   string
	Degraded bool
	Counts   []struct {
		Count, Min, Max int64
		Bucket          int64 `json:"bucket_ms"`
	}
	Retry   int64  `json:"retry_after_ms"`
	Outcome string `json:"outcome"`
	Error   *struct {
		Status  int
		Detail  string
		Outcome string
	}
}

// TryCount returns the node's answer for the count of a query such as key=a&window=1h.
func (s *Process) TryCount(query string) (a Answer, err error) {
	err = s.Ask("/v1/count?"+query, "", &a)
	if err == nil && len(a.Counts) != 1 {
		err = fmt.Errorf("%s: %d counts", query, len(a.Counts))
	}
	return a, err
}

// Count returns the node's answer for the count of a key in a window.
func (s *Process) Count(key, window string) Answer {
	s.T.Helper()
	a, err := s.TryCount("key=" + url.QueryEscape(key) + "&window=" + window)
	if err != nil {
		s.T.Fatal(err)
	}
	return a
}

// Counted returns the node's counts of the keys in the last day. It asks in batches.
func (s *Process) Counted(keys []string) (map[string]int64, error) {
	s.T.Helper()
	counts := map[string]int64{}
	const most = 500
	for len(keys) > 0 {
		some := keys[:min(most, len(keys))]
		keys = keys[len(some):]
		var body bytes.Buffer
		for i, key := range some {
			if i > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `{"op":"count","key":%q,"window":"24h"}`, key)
		}
		var answers struct{ Results []Answer }
		if err := s.Ask("/v1/batch", `{"ops":[`+body.String()+`]}`, &answers); err != nil {
			return nil, err
		}
		for i, a := range answers.Results {
			if a.Error != nil || len(a.Counts) != 1 {
				return nil, fmt.Errorf("count %s: %+v", some[i], a.Error)
			}
			counts[some[i]] = a.Counts[0].Max
		}
	}
	return counts, nil
}

// Ready returns the status and the body of /readyz.
func (s *Process) Ready() (int, string) {
	s.T.Helper()
	status, body := s.Get("/readyz")
	return status, string(body)
}

// Hash returns the name of the Redis Hash of a key in the default namespace.
func Hash(partitions int, key string) string {
	place := twotier.Placement{Partitions: partitions}
	return fmt.Sprintf("tt:{p%d}:default:%s", place.Of(nil, []byte(key)), key)
}

// VersionField is the field of a Hash that holds no count, but its version.
const VersionField = "v"

// Stored returns the counts of the keys in Redis: the sums of their fields. A field that counts
// nothing is an error.
func Stored(client redis.UniversalClient, partitions int, keys []string) (map[string]int64, error) {
	ctx := context.Background()
	var cmds []*redis.MapStringStringCmd
	pipe := client.Pipeline()
	for _, key := range keys {
		cmds = append(cmds, pipe.HGetAll(ctx, Hash(partitions, key)))
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	counts := map[string]int64{}
	for i, cmd := range cmds {
		fields, err := cmd.Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			if tair, tairErr := tairHash(ctx, client, Hash(partitions, keys[i])); tairErr == nil {
				fields, err = tair, nil
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", keys[i], err)
		}
		counts[keys[i]] = 0
		delete(fields, VersionField)
		for field, value := range fields {
			n, err := Events(field, value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", keys[i], err)
			}
			counts[keys[i]] += n
		}
	}
	return counts, nil
}

// Events returns how many events a field of a Hash has.
func Events(field, value string) (n int64, err error) {
	cells, err := Cells(field, value)
	for _, c := range cells {
		n += c.N
	}
	return n, err
}

// Cell is a number of events in a stretch of time, in unix milliseconds.
type Cell struct{ Start, Width, N int64 }

// Cells returns the cells that a field of a Hash has: the log, with the width, the index and the
// number of events of each, or a page of cells of one width, each with how far its index is from
// that of the one before.
func Cells(field, value string) (cells []Cell, err error) {
	rest := []byte(field[1:])
	number := func() int64 {
		n, used := binary.Uvarint(rest)
		rest = rest[max(used, 0):]
		return int64(n)
	}
	log, width, index := field == "d", int64(0), int64(0)
	if !log && !strings.HasPrefix(field, "c") {
		return nil, fmt.Errorf("field %q counts nothing", field)
	}
	if !log {
		width, index = number(), number()<<24
	}
	for rest = []byte(value); len(rest) > 0; {
		if log {
			width, index = number(), 0
		}
		index += number()
		n, used := binary.Varint(rest)
		if used <= 0 {
			return nil, fmt.Errorf("field %q can't be decoded: %q", field, value)
		}
		cells, rest = append(cells, Cell{index * width, width, n}), rest[used:]
	}
	return cells, nil
}

// tairHash reads a key whose buckets are in a TairHash, as with --redis-expiry=tairhash.
func tairHash(ctx context.Context, client redis.UniversalClient,
	name string) (map[string]string, error) {
	flat, err := client.Do(ctx, "EXHGETALL", name).StringSlice()
	fields := map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		fields[flat[i]] = flat[i+1]
	}
	return fields, err
}
