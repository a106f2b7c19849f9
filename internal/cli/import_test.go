package cli_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/imports"
)

func TestWrongUsageOfImport(t *testing.T) {
	const from = "import --from redis://127.0.0.1:1 "
	for _, test := range []struct{ args, want string }{
		{"import", "--from: want the URL"},
		{from, "--pattern: want a pattern"},
		{from + "--pattern {key", `--pattern: "{key": want a name in braces`},
		{from + "--pattern rl:{key} x", `unexpected argument "x"`},
		{from + "--pattern rl:{key} --format sets", `--format: "sets" is not one of auto, zset`},
		{from + "--pattern rl:{key} --unit h", `--unit: "h" is not one of auto, s`},
		{from + "--pattern rl:{key} --as {user}", "--as: {user} is not in --pattern"},
		{from + "--pattern rl:* ", "--as: {key} is not in --pattern"},
		{from + "--pattern rl:{key} --format fixed", "--window: want the length"},
		{from + "--pattern rl:{key} --format weighted", "--window: want the length"},
		{from + "--pattern rl:{key} --member {id}", "--member: "},
		{from + "--pattern rl:{key} --member {n", "--member: "},
		{from + "--pattern rl:{key} --member {n} --format list", "--member: only a zset"},
		{from + "--pattern rl:{key}:{index}", "--width: want the width"},
		{from + "--pattern rl:{key} --format redis-cell", "--limit: want the rate"},
		{from + "--pattern rl:{key} --format redis_rate --limit 9/1m --burst -1", "--burst: want"},
		{from + "--pattern rl:{key} --rate -1", "--rate: -1 is not a number"},
		{from + "--pattern rl:{key} --until noon", `--until: "noon" is neither`},
		{from + "--pattern rl:{key} --ack tape", "--ack: "},
		{"import --from http://x --pattern rl:{key}", "--from: redis URL"},
	} {
		_, err := exec(t, nil, strings.Fields(test.args)...)
		var usage *cli.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want wrong usage: %s", test.args, err, test.want)
		}
	}
}

// TestImportWithoutTwotier: nothing is read from Redis if twotier does not answer.
func TestImportWithoutTwotier(t *testing.T) {
	_, err := exec(t, []string{"TWOTIER_SERVER=127.0.0.1:1"}, "import", "--from",
		"redis://127.0.0.1:1", "--pattern", "rl:{key}")
	if err == nil || !strings.Contains(err.Error(), "no server at") {
		t.Errorf("%v", err)
	}
}

func TestProgressBar(t *testing.T) {
	r := &imports.Report{Keys: 120, Events: 1}
	for _, test := range []struct {
		seen, size int64
		want       string
	}{
		{0, 1000, strings.Repeat("░", 30) + "   0%  120 keys, 1 event"},
		{500, 1000, strings.Repeat("█", 15) + strings.Repeat("░", 15) + "  50%"},
		{1500, 1000, strings.Repeat("█", 30) + " 100%"},
		{0, 0, strings.Repeat("█", 30) + " 100%"},
	} {
		if got := cli.DrawBar(r, test.seen, test.size); !strings.HasPrefix(got, test.want) {
			t.Errorf("%d of %d: %s", test.seen, test.size, got)
		}
	}
}

// TestImportReport describes what an import has left out.
func TestImportReport(t *testing.T) {
	r := &imports.Report{Keys: 3, Counted: 7, TooOld: 1, Meanwhile: 5, Later: 2, Ahead: 3,
		Unreadable: 4, Example: `"k": field "x"`,
		Oldest: 1_700_000_000_000, Newest: 1_700_000_000_001,
		FailedKeys: 2, Failed: []imports.KeyError{{Key: "a\n", Error: "is a list"}},
		First:  &imports.Sample{From: "limit:ann:24h", Key: "ann", Events: 5},
		SpanMS: (25 * time.Hour).Milliseconds(), Formats: map[imports.Format]int64{imports.Hash: 1}}
	const want = `would count 7 events of 3 keys
for example limit:ann:24h -> ann in default: 5 events
times 2023-11-14T22:13:20.000Z to 2023-11-14T22:13:20.001Z
left out 5 events counted meanwhile by another import, or before an answer got lost
left out 1 event older than the namespace reaches back, 25h
left out 2 events after --until
left out 3 events ahead of the server's clock: repeat the import to add them
left out 4 elements that are no events, such as in "k": field "x"
lost: the times within a window: its events count from its start, so they leave when ` +
		`the limiter would have forgotten them; fixed windows include refused requests
not imported: "a\n": is a list
not imported: 1 key more
warning: mind the gap
nothing was written
`
	if got := cli.DescribeImport(r, true, "mind the gap"); got != want {
		t.Errorf("%s", got)
	}
	if got := cli.DescribeImport(r, false); strings.Contains(got, "for example") {
		t.Errorf("only a dry run shows an example: %s", got)
	}
}
