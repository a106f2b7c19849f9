package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/httpapi/client"
	"twotier.dev/twotier/internal/fields"
	"twotier.dev/twotier/internal/testing/must"
)

// TestRequestHasEveryBoolean sets all booleans of a request, and finds them in its body.
func TestRequestHasEveryBoolean(t *testing.T) {
	r := client.AcquireRequest{Check: client.Check{Key: "k"}}
	value := reflect.ValueOf(&r).Elem()
	for i := range value.NumField() {
		if field := value.Field(i); field.Kind() == reflect.Bool {
			field.SetBool(true)
		}
	}
	o := client.Op{Acquire: &r}
	body, err := o.Body()
	must.Succeed(t, err)
	for f := range fields.Booleans.All() {
		if !strings.Contains(string(body), `"`+f.Name()+`":true`) {
			t.Errorf("%s lacks %s", body, f.Name())
		}
	}
}

func TestPlacementIsTheServers(t *testing.T) {
	tags := []twotier.HashTags{nil, {"other": true}, {"default": true, "other": false}}
	for i := range 10_000 {
		key, ns := strconv.FormatUint(rand.Uint64(), 36),
			[]string{"", "default", "other", "x.y-z"}[i%4]
		for range i % 5 {
			at := rand.IntN(len(key) + 1)
			key = key[:at] + string("{}"[rand.IntN(2)]) + key[at:]
		}
		place := twotier.Placement{Partitions: 1 + rand.IntN(5000), Seed: rand.Uint64() >> (i % 64),
			HashTags: tags[i%len(tags)]}
		if got, want := client.Partition(ns, key, place.Seed, place.Partitions, place.HashTags),
			place.Of([]byte(ns), []byte(key)); got != want {
			t.Fatalf("%q %q under %+v: %d, want %d", ns, key, place, got, want)
		}
	}
}

const goodTable = `{"mode":"two-tier","ring_version":18446744073709551615,"partitions":3,"held":1,"members":[
	{"id":"a","address":"10.0.0.1:80","state":"alive","self":false,"partitions":2,"share":0.66},
	{"id":"b","address":"[::]:80","state":"leaving","self":true,"share":1e-3}],
	"owners":[0,1,0],"hash_seed":18446744073709551614,"hash_tags":{"default":false,"sms":true},"redis":{"kind":"redis","up":true,"error":null},"clock_offset_ms":-2}`

func TestReadTable(t *testing.T) {
	got, err := client.ReadTable([]byte(goodTable), "node:8080")
	if err != nil || !slices.Equal(got.Owners, []uint16{0, 1, 0}) || got.Seed != 1<<64-2 ||
		got.Version != 1<<64-1 ||
		!slices.Equal(got.Addresses, []string{"10.0.0.1:80", "node:8080"}) ||
		!slices.Equal(got.Leaving, []bool{false, true}) ||
		!maps.Equal(got.HashTags, map[string]bool{"default": false, "sms": true}) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"Redis mode": `{"mode":"redis","partitions":1,"members":[{"address":"a:1","state":"alive"}],"owners":[0],"hash_seed":0}`,
		"no owners":  `{"mode":"two-tier","partitions":1,"members":[{"address":"a:1","state":"alive"}]}`,
		"no seed":    `{"mode":"two-tier","partitions":1,"members":[{"address":"a:1","state":"alive"}],"owners":[0]}`,
	} {
		if got, err := client.ReadTable([]byte(text), "a:1"); err != nil ||
			got.Owner("", "key") != "" || len(got.Addresses) != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, text := range map[string]string{
		"nothing":          ``,
		"no members":       `{"mode":"two-tier","partitions":1,"owners":[0],"hash_seed":0}`,
		"unknown member":   `{"mode":"two-tier","partitions":1,"members":[{}],"owners":[1],"hash_seed":0}`,
		"other number":     `{"mode":"two-tier","partitions":2,"members":[{}],"owners":[0],"hash_seed":0}`,
		"large owner":      `{"mode":"two-tier","partitions":1,"members":[{}],"owners":[65536],"hash_seed":0}`,
		"negative owner":   `{"mode":"two-tier","partitions":1,"members":[{}],"owners":[-1],"hash_seed":0}`,
		"fraction":         `{"mode":"two-tier","partitions":1,"members":[{}],"owners":[0.5],"hash_seed":0}`,
		"hash tags":        `{"mode":"two-tier","partitions":1,"members":[{}],"owners":[0],"hash_seed":0,"hash_tags":{"a":1}}`,
		"list of tags":     `{"mode":"two-tier","partitions":1,"members":[{}],"owners":[0],"hash_seed":0,"hash_tags":["a"]}`,
		"cut":              goodTable[:len(goodTable)-1],
		"something behind": goodTable + "x",
	} {
		if got, err := client.ReadTable([]byte(text), "a:1"); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// FuzzTable parses tables: in accepted ones, all owners exist.
func FuzzTable(f *testing.F) {
	f.Add([]byte(goodTable), "key")
	f.Add(
		[]byte(
			`{"mode":"two-tier","partitions":1,"members":[{"address":"\u0061:1"}],"owners":[0],"hash_seed":0}`), "")
	f.Add([]byte(`{"members":[{"state":"alive"}],"x":[{},[],"\"",-1.5e9,true,null]}`), "a")
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		got, err := client.ReadTable(b, "node:1")
		if err != nil {
			return
		}
		if len(got.Addresses) == 0 {
			t.Error("a table of no members")
		}
		_ = got.Owner("", key)
	})
}

// asked are operations whose answers are parsed.
func asked() []client.Op {
	limits := []client.Limit{{Window: time.Minute, Max: 15}, {Window: 24 * time.Hour, Max: 50}}
	return []client.Op{
		{Add: &client.AddRequest{Key: "a"}},
		{Add: &client.AddRequest{Key: "a", Limits: limits}},
		{Count: &client.CountRequest{Key: "a", Windows: []time.Duration{time.Minute, time.Hour}}},
		{Acquire: &client.AcquireRequest{Check: client.Check{Key: "a", Limits: limits}}},
		{Acquire: &client.AcquireRequest{Checks: []client.Check{{Key: "a", Limits: limits[:1]},
			{Key: "b", Limits: limits}}}},
	}
}

// TestStateOfLimitsIsRead reads the lent part of a hot key, and a refusal in shadow.
func TestStateOfLimitsIsRead(t *testing.T) {
	r := asked()[3].Read([]byte(`{"allowed":true,"limits":[{"count":16,"remaining":0,"lent":3,` +
		`"refused":true,"shadow":true},{"count":16,"remaining":34}],"retry_after_ms":0,` +
		`"source":"memory"}`))
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if l := r.Acquire.Limits[0]; !l.Shadow || !l.Refused || l.Lent != 3 {
		t.Errorf("%+v", l)
	}
	if l := r.Acquire.Limits[1]; l.Shadow || l.Refused || l.Lent != 0 {
		t.Errorf("%+v", l)
	}
}

// TestBansAreRead: an answer has the rule, the key and the end of each ban, and the rules' version.
func TestBansAreRead(t *testing.T) {
	const text = `{"allowed":false,"limits":[{"refused":true},{}],"refused_by":[],` +
		`"bans":[{"rule":"login","key":"a","until":1767226200999,"started":true},` +
		`{"rule":"slow","key":"a","until":1767226260999}],"retry_after_ms":9,"source":"memory",` +
		`"rules_version":3}`
	r := asked()[3].Read([]byte(text))
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	want := []client.Ban{{"login", "a", time.UnixMilli(1767226200999), true},
		{"slow", "a", time.UnixMilli(1767226260999), false}}
	if !slices.Equal(r.Acquire.Bans, want) || r.Acquire.RulesVersion != 3 {
		t.Errorf("%+v", r.Acquire)
	}
	many := strings.Replace(text, `{"rule"`, strings.Repeat(`{"rule":"x","key":"a","until":1},`,
		20)+`{"rule"`, 1)
	if r := asked()[3].Read([]byte(many)); r.Err == nil {
		t.Errorf("more bans than a server sends: %+v", r.Acquire.Bans)
	}
}

// FuzzAnswer parses answers: accepted ones match their requests.
func FuzzAnswer(f *testing.F) {
	for i, text := range []string{
		`{"key":"a","counts":[],"over":false,"source":"memory"}`,
		`{"key":"a","counts":[{"window":"1m","count":1,"min":0,"max":2},{"window":"24h","count":1,"min":-1,"max":2}],"over":true,"source":"owner","degraded":true}`,
		`{"key":"\u00e4","counts":[{"window":"1m","count":1,"min":0,"max":2,"bucket_ms":1000},{"count":1}],"source":"memory","age_ms":9223372036854775807,"degraded":false}`,
		`{"allowed":false,"limits":[{"window":"1m","max":15,"count":15,"remaining":0,"lent":7,"refused":true},{"max":50}],"refused_by":["limits[0]"],"retry_after_ms":-1,"source":"memory"}`,
		`{"allowed":true,"checks":[{"key":"a","allowed":true,"limits":[{}],"retry_after_ms":0},{"limits":[{},{}]}],"retry_after_ms":0,"source":"x"}`,
		`{"error":{"type":"urn:twotier:problem:refused","title":"Request refused","status":422,"detail":"n: want 1"}}`,
	} {
		f.Add([]byte(text), uint8(i))
	}
	f.Fuzz(func(t *testing.T, b []byte, which uint8) {
		ops := asked()
		o := ops[int(which)%len(ops)]
		r := o.Read(b)
		switch {
		case r.Err != nil:
			if r.Add != nil || r.Count != nil || r.Acquire != nil {
				t.Errorf("an answer and an error: %+v", r)
			}
		case o.Add != nil && len(r.Add.Counts) != len(o.Add.Limits),
			o.Count != nil && len(r.Count.Counts) != len(o.Count.Windows),
			o.Acquire != nil && (len(r.Acquire.Limits) != len(o.Acquire.Limits) ||
				len(r.Acquire.Checks) != len(o.Acquire.Checks)):
			t.Errorf("not what was asked for: %+v from %q", r, b)
		}
	})
}

// FuzzSplit splits the answer to a batch.
func FuzzSplit(f *testing.F) {
	f.Add([]byte(`{"results":[{"a":1}, {"b":"]}"} ,[]]}`), uint8(3))
	f.Add([]byte(`{"results":[]}`), uint8(0))
	f.Add([]byte(`{"results":[{}`), uint8(2))
	f.Add([]byte(`{"results":[1],"Results":[1,2],"results":[1,2,3]}`), uint8(2))
	f.Add([]byte(`{"results":[1`+strings.Repeat(",1", 5000)+`]}`), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, ops uint8) {
		if _, err := client.Split(b, int(ops)); err != nil &&
			!errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrUnknownOutcome) {
			t.Error(err)
		}
		// Of surplus results the first ones count, which directly follow the prefix.
		list, ok := strings.CutPrefix(string(b), `{"results":`)
		var want []json.RawMessage
		if !ok || !json.Valid(b) || json.NewDecoder(strings.NewReader(list)).Decode(&want) != nil ||
			len(want) == 0 || depth(b) >= 300 || values(b) > mostValues {
			return
		}
		if _, err := client.Split(b, min(len(want), 255)); err != nil {
			t.Errorf("%q: %v", b, err)
		}
	})
}

// mostValues bounds the values in the answer to an empty request.
const mostValues = 4096

// values returns an upper bound of the number of values.
func values(b []byte) int { return 1 + bytes.Count(b, []byte(",")) + depth(b) }

// depth returns an upper bound of the nesting.
func depth(b []byte) (n int) {
	for _, c := range b {
		if c == '[' || c == '{' {
			n++
		}
	}
	return n
}

// TestNumbersAreReadExactly compares with encoding/json on answers with random numbers.
func TestNumbersAreReadExactly(t *testing.T) {
	o := client.Op{Count: &client.CountRequest{Key: "a", Windows: []time.Duration{time.Minute}}}
	for range 2000 {
		want := map[string]any{"count": rand.Int64(), "min": -rand.Int64(), "max": rand.Int64N(10),
			"bucket_ms": 1000}
		b, err := json.Marshal(map[string]any{"counts": []any{want}, "source": "memory",
			"x": rand.Float64(), "y": []any{nil, true, "ü\n"}})
		must.Succeed(t, err)
		r := o.Read(b)
		w := client.WindowCount{
			Window: time.Minute, Count: want["count"].(int64), Min: want["min"].(int64),
			Max: want["max"].(int64), Bucket: time.Second,
		}
		if r.Err != nil || !reflect.DeepEqual(r.Count.Counts, []client.WindowCount{w}) {
			t.Fatalf("%s: %+v", b, r)
		}
	}
}

func TestWindowsAsText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Hour: "1h", 25 * time.Hour: "25h", 90 * time.Minute: "90m", 90 * time.Second: "90s",
		1500 * time.Millisecond: "1500ms",
		time.Microsecond:        "1000ns", 0: "0h", -time.Second: "-1s",
	} {
		if got := client.Window(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
