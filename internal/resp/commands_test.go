package resp_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/verdicts"
)

// TestCommands sends commands one after the other to a node whose clock stands still.
func TestCommands(t *testing.T) {
	s := newService(t)
	c := dial(t, serve(t, resp.Options{Service: s, Version: "v1",
		Verdicts: verdicts.New(s.refused)}))
	c.expect([][2]string{
		{"TT.ACQUIRE a LIMIT 30s 2", "[1 0 1 1]"},
		{"tt.acquire a n 1 limit 30s 2 limit 24h 50", "[1 0 2 0 2 48]"},
		{"TT.ACQUIRE a LIMIT 30s 2", "[0 30000 2 0]"},
		{"TT.ACQUIRE a N 3 LIMIT 30s 2", "[0 -1 2 0]"},
		{"TT.ACQUIRE a LIMIT 30s 3 KEY a NS login LIMIT 30s 1", "[1 0 3 0 1 0]"},
		{"TT.ACQUIRE a LIMIT 30s 9 KEY a NS login LIMIT 30s 1", "[0 30000 3 6 1 0]"},
		{"TT.ACQUIRE a COUNTDENIED LIMIT 30s 1", "[0 30000 4 0]"},
		{"TT.COUNT a 30s 24h", "[4 4]"},
		{"TT.COUNT a 30s BOUNDS", "[4 4 4]"},
		{"TT.COUNT a 30s NS login", "[1]"},
		{"TT.COUNT a 30s AT 1699999999000", "[0]"},
		{"TT.ADD b", "OK"},
		{"TT.ADD b N 4 NS default TS 1700000000000 ACK redis", "OK"},
		{"TT.ADD b N -2 TS 1700000000000", "OK"},
		{"TT.COUNT b 1m", "[3]"},
		{"TT.SERIES b 100ms", "[[1699999999900 0] [1700000000000 3]]"},
		{"TT.SERIES a 100ms NS login", "[[1699999999900 0] [1700000000000 1]]"},
		{"TT.TOP", "[[default a 4] [default b 3] [login a 1]]"},
		{"TT.TOP 1 WINDOW 1m", "[[default a 4]]"},
		{"tt.top 1 window 1m by count", "[[default a 4]]"},
		{"TT.TOP BY refused WINDOW 1m", "[[default a 3] [login a 1]]"},
		{"TT.TOP BY shadow", "[]"},
		{"TT.TOP 5 BY concurrent", "[]"},
		{"TT.RESET b", "OK"},
		{"TT.ACQUIRE cost N 9 CHARGE LIMIT 30s 8", "[0 -1 9 0]"},
		{"TT.ACQUIRE cost N 0 LIMIT 30s 9", "[0 30000 9 0]"},
		{"TT.ACQUIRE cost N 0 LIMIT 30s 10", "[1 0 9 1]"},
		{"CL.THROTTLE u 1 30 60", "[0 2 1 -1 4]"},
		{"CL.THROTTLE u 1 30 60", "[0 2 0 -1 4]"},
		{"CL.THROTTLE u 1 30 60 0", "[0 2 0 -1 4]"},
		{"CL.THROTTLE u 1 30 60 1", "[1 2 0 4 4]"},
		{"CL.THROTTLE u 1 30 60 3", "[1 2 0 -1 4]"},
		{"CL.THROTTLE v 1 30 60 0", "[0 2 2 -1 0]"},
		{"CL.THROTTLE \xff\xfe 0 1 60", "[0 1 0 -1 60]"},
		{"CL.THROTTLE \xff\xfe 0 1 60 0", "[0 1 0 -1 60]"},
		{"CL.THROTTLE \xff\xff 0 1 60 0", "[0 1 1 -1 0]"},
		{"CL.THROTTLE a\x01 0 1 60", "[0 1 0 -1 60]"},
		{"CL.THROTTLE " + strings.Repeat("x", 60_000) + " 0 1 60", "[0 1 0 -1 60]"},
		{"CL.THROTTLE " + strings.Repeat("x", 60_001) + " 0 1 60 0", "[0 1 1 -1 0]"},
		{"CL.THROTTLE sha256:x 0 1 60", "[0 1 0 -1 60]"},
		{"TT.COUNT sha256:x 1m", "[0]"},
		{"PING", "PONG"},
		{"PING x", "x"},
		{"ECHO x", "x"},
		{"SELECT 0", "OK"},
		{"CLIENT SETNAME me", "OK"},
		{"CLIENT GETNAME", "me"},
		{"CLIENT ID", "1"},
		{"CLIENT SETINFO LIB-NAME x", "OK"},
		{"CONFIG GET save", "[save ]"},
		{"CONFIG GET *", "[save  appendonly no]"},
		{"COMMAND COUNT", "28"},
		{"COMMAND INFO tt.release", "[[tt.release 2 [write fast] 0 0 0 [] [] [] []]]"},
		{"COMMAND INFO tt.top nonsense", "[[tt.top -1 [readonly] 0 0 0 [] [] [] []] nil]"},
		{"COMMAND INFO multi exec", "[[multi 1 [fast] 0 0 0 [] [] [] []] " +
			"[exec 1 [] 0 0 0 [] [] [] []]]"},
		{"HELLO", "[server twotier version 7.0.0 proto 2 id 1 mode standalone role master modules []]"},
		{"HELLO 3 SETNAME you", "{server twotier version 7.0.0 proto 3 id 1 mode standalone " +
			"role master modules []}"},
		{"CONFIG GET save", "{save }"},
		{"CLIENT GETNAME", "you"},
		{"RESET", "RESET"},
		{"CLIENT GETNAME", "nil"},
		{"CONFIG GET save", "[save ]"},
		{"QUIT", "OK"},
	})
	c.ended()
}

// TestRefusals sends commands that can't be executed. Nothing is counted, and the connection stays
// open.
func TestRefusals(t *testing.T) {
	s := newService(t)
	c := dial(t, serve(t, resp.Options{Service: s}))
	limits, keys := strings.Repeat(" LIMIT 1m 1", 17), strings.Repeat(" KEY k LIMIT 1m 1", 64)
	long := strings.Repeat("k", 257)
	c.expect([][2]string{
		{"NONSENSE x", "-ERR unknown command 'NONSENSE'"},
		{"TT.ACQUIRE k", "limits: missing; want at least one LIMIT or RULE"},
		{"TT.ACQUIRE k LIMIT 1m 1 LIMIT 1m", "limits[1].window: want LIMIT, a window and a maximum"},
		{"TT.ACQUIRE k LIMIT 1x 1", `limits[0].window: want a duration such as "90s" or ` +
			`"1d2h3m4s", got "1x"`},
		{"TT.ACQUIRE k LIMIT 1m -1", "limits[0].max: want 0 or more"},
		{"TT.ACQUIRE k LIMIT 1m 1 KEY b LIMIT 1m 01", "checks[1].limits[0].max: want 0 or more"},
		{"TT.ACQUIRE k N -1 LIMIT 1m 1", "n: want 0 to 2147483647"},
		{"TT.ACQUIRE k N 1 N 1 LIMIT 1m 1", "n: given twice"},
		{"TT.ACQUIRE k NS a/b LIMIT 1m 1",
			"ns: want 1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-'"},
		{"TT.ACQUIRE k N 1 TS 5", "limits: missing; want at least one LIMIT"},
		{"TT.ACQUIRE k ACK never LIMIT 1m 1",
			"ack: want memory, redis, replica or disk, got never"},
		{"TT.ACQUIRE k LIMIT 1m 1 BOUNDS", "BOUNDS: unknown option; want NS, N, TS, ACK, " +
			"COUNTDENIED, CHARGE, DRYRUN, HOLD, ONEXPIRY, VALUES, LIMIT, VLIMIT, CONCURRENT, " +
			"RULE or KEY"},
		{"TT.ACQUIRE k LIMIT 400d 1", "limits[0].window: "},
		{"TT.ACQUIRE k LIMIT 1m 1 KEY", "checks[1].key: missing; "},
		{"TT.ACQUIRE k" + limits, "limits: want at most 16 limits"},
		{"TT.ACQUIRE k LIMIT 1m 1" + keys, "checks: want at most 64 checks"},
		{"TT.ACQUIRE " + long + " LIMIT 1m 1", "key: want 1 to 256 bytes of UTF-8"},
		{"TT.ADD k LIMIT 1m 1", "LIMIT: unknown option; want NS, N, TS or ACK"},
		{"TT.ADD k N 2147483648", "n: want 1 to 2147483647, or -1 to -2147483647 to take back"},
		{"TT.ADD k TS 0", "ts: want unix milliseconds, at least 1"},
		{"TT.ADD k TS 5", "ts: "},
		{"TT.COUNT k NS default", "window: missing; "},
		{"TT.COUNT k 1m sometimes", `window: want a duration`},
		{"TT.COUNT k" + strings.Repeat(" 1m", 65), "window: want at most 64 windows"},
		{"TT.COUNT k 1m N 1", "N: unknown option; want a window, NS, AT or BOUNDS"},
		{"TT.SERIES k nonsense", "window: "},
		{"TT.SERIES k 1m NS", "NS: unknown option; want NS and a namespace"},
		{"TT.TOP 0", "n: want 1 to 1000"},
		{"TT.TOP 1 2", "1: unknown option; want WINDOW and a duration, or BY and an order"},
		{"TT.TOP BY chance", `by: want count, refused, shadow or concurrent, got "chance"`},
		{"TT.TOP BY concurrent WINDOW 1m", "window: leave it out: concurrent lists the holds that " +
			"are open now"},
		{"TT.RESET k NS /", "ns: want 1 to 64"},
		{"CL.THROTTLE k -1 1 1", "max_burst: want 0 to 2147483647"},
		{"CL.THROTTLE k 1 0 1", "count: want 1 to 2147483647"},
		{"CL.THROTTLE k 100 1 86400", "limits[0].window: "},
		{"SELECT 1", "DB index is out of range; there is only 0"},
		{"CLIENT KILL", "unknown subcommand or wrong number of arguments for 'CLIENT KILL'"},
		{"AUTH x", "AUTH <token> called on a node that has no tokens"},
		{"HELLO 4", "-NOPROTO unsupported protocol version"},
		{"TT.TOP", "[]"}, // nothing is counted
	})
}

// TestErrorsOfTheService compares the codes of errors with the table of docs/doors.md.
func TestErrorsOfTheService(t *testing.T) {
	s := newService(t)
	c := dial(t, serve(t, resp.Options{Service: s}))
	later := &twotier.RetryError{Err: twotier.ErrBehind, After: 7 * time.Second}
	for _, test := range []struct {
		err  error
		want string
	}{
		{twotier.ErrFull, "-BUSY overloaded: the memory for counts is full; nothing was counted; " +
			"retry_after_ms=1000"},
		{later, "-BUSY overloaded: the store can't keep up with new keys; nothing was counted; " +
			"retry_after_ms=7000"},
		{twotier.ErrClosed, "-TRYAGAIN closed; nothing was counted; retry_after_ms=1000"},
		{fmt.Errorf("%w: sent\r\n+OK", twotier.ErrUnknownOutcome),
			"-UNKNOWN unknown outcome: sent+OK"},
		{errors.New("secret"), "-ERR an error of this server's own; its log says more"},
	} {
		s.err.Store(&test.err)
		c.expect([][2]string{{"TT.ADD k", test.want}})
	}
}

// TestPipelinesKeepTheirOrder sends dependent commands in one piece, and in pieces of every length.
func TestPipelinesKeepTheirOrder(t *testing.T) {
	s := newService(t)
	server := serve(t, resp.Options{Service: s})
	var all strings.Builder
	var want []string
	for i := range 20 {
		key := fmt.Sprintf("k%d", i%3)
		for _, line := range []string{"TT.ADD %s", "TT.COUNT %s 1m", "PING %s",
			"TT.ADD %s N x", "TT.ACQUIRE %s LIMIT 1m 1000"} {
			all.WriteString(command(fmt.Sprintf(line, key)))
		}
		n := i/3*2 + 1
		want = append(want, "OK", fmt.Sprintf("[%d]", n), key, "-ERR n: want 1 to 2147483647, or "+
			"-1 to -2147483647 to take back", fmt.Sprintf("[1 0 %d %d]", n+1, 999-n))
	}
	for _, piece := range []int{all.Len(), 1000, 100, 7, 1} {
		s.now.Add(time.Hour.Milliseconds()) // earlier counts have left the windows
		c := dial(t, server)
		c.sendInPieces(all.String(), piece)
		c.expectReplies(want...)
	}
}

// TestPipelinesAreOneBatch counts the service calls for commands that arrive together.
func TestPipelinesAreOneBatch(t *testing.T) {
	s := newService(t)
	c := dial(t, serve(t, resp.Options{Service: s}))
	c.send(strings.Repeat(command("TT.ADD k"), 20) + command("TT.COUNT k 1m"))
	c.expectReplies(append(slices.Repeat([]string{"OK"}, 20), "[20]")...)
	if n := s.deals.Load(); n != 1 {
		t.Errorf("%d batches", n)
	}
}
