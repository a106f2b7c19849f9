package resp_test

import (
	"bytes"
	"slices"
	"testing"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/testing/costtable"
)

// TestInlineQuotes sends inline commands with quotes, which are split into words as in Redis.
func TestInlineQuotes(t *testing.T) {
	tt := dial(t, serve(t, resp.Options{Service: newService(t)}))
	for _, test := range []struct{ line, want string }{
		{`ECHO "a b"`, "a b"},
		{`ECHO 'a b'`, "a b"},
		{`ECHO "a\x41\n\t\"\\"`, "aA\n\t\"\\"},
		{`ECHO 'it\'s \n'`, `it's \n`},
		{`ECHO pre"fix"`, "prefix"},
		{`ECHO ""`, ""},
		{`ECHO a"b c"`, "ab c"},
		{`"ECHO" x`, "x"},
		{"\r\n  ECHO  a\r\n", "a"},
	} {
		tt.send(test.line + "\r\n")
		if got := tt.reply(); got != test.want {
			t.Errorf("%s: %q, want %q", test.line, got, test.want)
		}
	}
	for _, line := range []string{`ECHO "a`, `ECHO 'a`, `ECHO "a"b`, `ECHO "a\"`} {
		c := dial(t, serve(t, resp.Options{Service: newService(t)}))
		c.send(line + "\r\n")
		if got := c.reply(); got != "-ERR Protocol error: unbalanced quotes in request" {
			t.Errorf("%s: %q", line, got)
		}
		c.ended()
	}
}

// FuzzInput reads arbitrary bytes in one piece and in two: the commands must be the same, with
// arguments within the bounds and within the input, unless quotes in it were decoded.
func FuzzInput(f *testing.F) {
	for _, raw := range []string{"PING\r\n",
		encode("TT.ADD", "k"), "*1\r\n$4\r\nPING\r\n*0\r\n\r\n",
		encode("TT.ACQUIRE", "k", "LIMIT", "30s", "2") + encode("ECHO", ""), "*-1\r\nx", "*2\r\n$1",
		"*1\r\n$0\r\n\r\n", "PI\"N\"'G'\n", "*12\r\n", "*1\r\n$+1\r\na\r\n"} {
		f.Add([]byte(raw), uint(len(raw)/2))
	}
	f.Fuzz(func(t *testing.T, raw []byte, at uint) {
		cut := int(at % uint(len(raw)+1))
		whole, wholeErr := resp.Commands(raw)
		parts, partsErr := resp.Commands(raw[:cut], raw[cut:])
		// A mistake behind the cut may be noticed later, once the shortest form of its command has
		// arrived.
		if wholeErr == nil && partsErr != nil {
			t.Fatalf("in one piece %v, in two %v", wholeErr, partsErr)
		}
		if !slices.EqualFunc(whole, parts, func(a, b [][]byte) bool {
			return slices.EqualFunc(a, b, bytes.Equal)
		}) {
			t.Fatalf("in one piece %q, in two %q", whole, parts)
		}
		for _, args := range whole {
			if len(args) > resp.MaxArgs {
				t.Fatalf("%d arguments", len(args))
			}
			for _, arg := range args {
				if len(arg) > len(raw) ||
					!bytes.Contains(raw, arg) && !bytes.ContainsAny(raw, `"'`) {
					t.Fatalf("%q was not sent", arg)
				}
			}
		}
	})
}

// FuzzOperation parses arbitrary arguments: every accepted operation must be one that the core
// accepts.
func FuzzOperation(f *testing.F) {
	for _, words := range [][]string{{"k", "LIMIT", "30s", "2"}, {"k", "1m", "BOUNDS"},
		{"k", "N", "-3", "TS", "5"}, {"k", "LIMIT", "1s", "0", "KEY", "l", "NS", "x", "LIMIT",
			"24h", "9"}, {"k", "15", "30", "60", "2"}, {"k", "1", "3", "9223372036854775807"}} {
		f.Add([]byte(encode(words...)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		commands, _ := resp.Commands(raw)
		for _, args := range commands {
			if len(args) == 0 {
				continue
			}
			for _, op := range resp.Operations(args) {
				verify(t, args, &op)
			}
		}
	})
}

func verify(t *testing.T, args [][]byte, op *twotier.Op) {
	t.Helper()
	if len(op.Checks) < 1 || len(op.Checks) > 64 || op.TS < 0 {
		t.Fatalf("%q: %+v", args, op)
	}
	for _, c := range op.Checks {
		wantLimits := op.Kind != twotier.Add
		if len(c.Key) < 1 || len(c.Key) > 256 || (len(c.Limits) > 0) != wantLimits ||
			c.N == 0 || c.N > 1<<31-1 || c.N < 1-1<<31 || c.N < 0 && op.Kind != twotier.Add {
			t.Fatalf("%q: %+v", args, c)
		}
		for _, l := range c.Limits {
			if l.Window < 1 || l.Max < 0 {
				t.Fatalf("%q: %+v", args, l)
			}
		}
	}
}

// TestEveryCommandHasACost compares the commands with the table of costs.
func TestEveryCommandHasACost(t *testing.T) {
	costtable.Compare(t, "../../docs/security.md", resp.Names(), func(call string) bool {
		return call[0] != '/'
	})
}
