package resp_test

import (
	"testing"

	"twotier.dev/twotier/internal/resp"
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
