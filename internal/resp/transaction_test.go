package resp_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/resp"
	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/internal/token"
)

// TestTransaction sends the commands of transactions one after the other.
func TestTransaction(t *testing.T) {
	s := newService(t)
	server := serve(t, resp.Options{Service: s})
	c, other := dial(t, server), dial(t, server)
	c.expect([][2]string{
		{"MULTI", "OK"},
		{"TT.ADD a N 2", "QUEUED"},
		{"tt.acquire a LIMIT 30s 3", "QUEUED"},
		{"TT.ACQUIRE a LIMIT 30s 3", "QUEUED"},
		{"TT.ACQUIRE b LIMIT 30s 3", "QUEUED"},
		{"TT.COUNT a 30s 24h", "QUEUED"},
		{"TT.SERIES b 100ms", "QUEUED"},
		{"TT.RESET b", "QUEUED"},
		{"TT.DISTINCT d VALUES 2 x y WINDOW 1h", "QUEUED"},
		{"CL.THROTTLE u 1 30 60", "QUEUED"},
		{"TT.TOP 1", "QUEUED"},
		{"TT.SETTLE id 1", "QUEUED"},
		{"TT.RENEW id 1m", "QUEUED"},
		{"ECHO x", "QUEUED"},
		{"UNWATCH", "QUEUED"},
		{"SELECT 1", "QUEUED"},
		{"EXEC", "[OK [1 0 3 0] [0 30000 3 0] [1 0 1 2] [3 3] " +
			"[[1699999999900 0] [1700000000000 1]] OK [2] [0 2 1 -1 4] [[default a 3]] " +
			"-ERR hold: this server has no holds -ERR hold: this server has no holds x OK " +
			"-ERR DB index is out of range; there is only 0]"},
		{"EXEC", "-ERR EXEC without MULTI"},
		{"TT.COUNT a 30s", "[3]"},
		{"MULTI", "OK"},
		{"EXEC", "[]"},
		{"MULTI", "OK"},
		{"TT.ADD a", "QUEUED"},
		{"DISCARD", "OK"},
		{"DISCARD", "-ERR DISCARD without MULTI"},
		{"MULTI", "OK"},
		{"TT.ADD a", "QUEUED"},
		{"MULTI", "-ERR MULTI calls can not be nested"},
		{"WATCH a", "-ERR WATCH inside MULTI is not allowed"},
		{"EXEC", "[OK]"},
		{"WATCH a", "-ERR WATCH: no key can be watched, because counts change with time; " +
			"TT.ACQUIRE compares and counts several keys in one step"},
		{"UNWATCH", "OK"},
		{"HELLO 3", "{server twotier version 7.0.0 proto 3 id 1 mode standalone role master " +
			"modules []}"},
		{"MULTI", "OK"},
		{"CONFIG GET save", "QUEUED"},
		{"HELLO 2", "QUEUED"},
		{"CONFIG GET save", "QUEUED"},
		{"EXEC", "[{save } [server twotier version 7.0.0 proto 2 id 1 mode standalone " +
			"role master modules []] [save ]]"},
		{"MULTI", "OK"},
		{"TT.ADD a", "QUEUED"},
		{"RESET", "RESET"},
		{"TT.ADD a", "OK"},
		{"MULTI", "OK"},
		{"TT.ADD a", "QUEUED"},
		{"QUIT", "OK"},
	})
	c.ended()
	other.expect([][2]string{{"TT.COUNT a 30s", "[5]"}})
}

// TestRefusedTransactions queues a command that can't be executed between two that can. The error
// comes at once, and EXEC executes none of the three.
func TestRefusedTransactions(t *testing.T) {
	s := newService(t)
	c := dial(t, serve(t, resp.Options{Service: s}))
	for _, test := range [][2]string{
		{"NONSENSE x", "-ERR unknown command 'NONSENSE'"},
		{"TT.ADD", "-ERR wrong number of arguments for 'tt.add' command"},
		{"TT.ADD k N x", "-ERR n: want 1 to 2147483647"},
		{"TT.ACQUIRE k", "-ERR limits: missing"},
		{"TT.ACQUIRE k LIMIT 1m 1 KEY b LIMIT 1m 01", "-ERR checks[1].limits[0].max: want 0 or"},
		{"TT.ACQUIRE k RULE none", "-ERR rules: there is no rule \"none\""},
		{"TT.COUNT k sometimes", "-ERR window: "},
		{"TT.SERIES k nonsense", "-ERR window: "},
		{"TT.TOP 0", "-ERR n: want 1 to 1000"},
		{"TT.RESET k NS /", "-ERR ns: want 1 to 64"},
		{"TT.DISTINCT k VALUES 2 a", "-ERR values: want their number"},
		{"TT.SETTLE id x", "-ERR n: want 0 to 2147483647"},
		{"TT.RENEW id x", "-ERR duration: want a duration"},
		{"CL.THROTTLE k 1 0 1", "-ERR count: want 1 to 2147483647"},
	} {
		c.expect([][2]string{
			{"MULTI", "OK"}, {"TT.ADD k", "QUEUED"}, test, {"TT.ADD k", "QUEUED"},
			{"EXEC", "-EXECABORT Transaction discarded because of previous errors."},
			{"EXEC", "-ERR EXEC without MULTI"},
		})
	}
	c.expect([][2]string{{"TT.TOP", "[]"}, {"TT.DISTINCT k WINDOW 1h", "[0]"}}) // nothing counts
}

// TestTransactionsAsInRedis sends the same commands to Redis and to a node.
func TestTransactionsAsInRedis(t *testing.T) {
	nc, err := net.Dial("tcp", redistest.Start(t).Addr())
	must.Succeed(t, err)
	redis, c := attach(t, nc), dial(t, serve(t, resp.Options{Service: newService(t)}))
	for _, line := range []string{
		"EXEC", "DISCARD", "UNWATCH", "MULTI x",
		"MULTI", "ECHO a", "PING", "UNWATCH", "PING b", "SELECT 0", "EXEC", "EXEC",
		"MULTI", "EXEC", "MULTI", "PING", "DISCARD", "DISCARD",
		"MULTI", "MULTI", "DISCARD", "MULTI", "WATCH k", "DISCARD",
		"MULTI", "PING", "ECHO", "PING", "EXEC", "EXEC", "MULTI", "DISCARD x", "EXEC", "EXEC",
		"MULTI", "ECHO", "DISCARD", "EXEC", "MULTI", "PING", "EXEC x", "EXEC",
		"MULTI", "PING", "RESET", "EXEC", "PING", "MULTI", "PING", "QUIT",
	} {
		if got, want := c.do(line), redis.do(line); got != want {
			t.Errorf("%s: got %s, Redis answers %s", line, got, want)
		}
	}
	c.ended()
	redis.ended()
}

// TestTransactionsAnswerLikePipelines executes random operations in transactions, and the same in
// pipelines of another counter. The answers are equal, and a transaction with a refused command
// counts nothing.
func TestTransactionsAnswerLikePipelines(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 33))
	queueing, plain := newService(t), newService(t)
	c := dial(t, serve(t, resp.Options{Service: queueing}))
	other := dial(t, serve(t, resp.Options{Service: plain}))
	aborted := 0
	for range 200 {
		step := rnd.Int64N(40_000)
		queueing.now.Add(step)
		plain.now.Add(step)
		var asks, valid []string
		for range rnd.IntN(40) {
			o := draw(rnd, plain.now.Load())
			asks = append(asks, encode(o.words()...))
		}
		c.send(command("MULTI") + strings.Join(asks, "") + command("EXEC"))
		c.reply()
		for _, ask := range asks {
			if got := c.reply(); got == "QUEUED" {
				valid = append(valid, ask)
			}
		}
		got := c.reply()
		if len(valid) < len(asks) {
			aborted++
			if got != "-EXECABORT Transaction discarded because of previous errors." {
				t.Fatalf("%q: %s", asks, got)
			}
			c.send(command("MULTI") + strings.Join(valid, "") + command("EXEC"))
			for range len(valid) + 1 {
				c.reply()
			}
			got = c.reply()
		}
		other.send(strings.Join(valid, ""))
		want := make([]string, len(valid))
		for i := range want {
			want[i] = other.reply()
		}
		if want := "[" + strings.Join(want, " ") + "]"; got != want {
			t.Fatalf("%q:\ngot  %s\nwant %s", valid, got, want)
		}
	}
	if aborted == 0 {
		t.Error("no transaction had a refused command")
	}
}

// TestTransactionsInPieces sends transactions, as clients do for a pipeline, in one piece and in
// pieces of every length.
func TestTransactionsInPieces(t *testing.T) {
	server := serve(t, resp.Options{Service: newService(t)})
	for _, piece := range []int{100_000, 1000, 100, 7, 1} {
		c := dial(t, server)
		var all strings.Builder
		var want []string
		for i := range 20 {
			key := fmt.Sprintf("p%d-%d", piece, i%3)
			n := i/3*2 + 1
			all.WriteString(command("PING") + command("MULTI") + command("TT.ADD "+key) +
				"TT.COUNT '" + key + "' 1m\r\n" + command("PING") + // an inline command
				command("TT.ACQUIRE "+key+" LIMIT 1m 1000") + command("EXEC"))
			want = append(want, "PONG", "OK", "QUEUED", "QUEUED", "QUEUED", "QUEUED",
				fmt.Sprintf("[OK [%d] PONG [1 0 %d %d]]", n, n+1, 999-n))
		}
		c.sendInPieces(all.String(), piece)
		c.expectReplies(want...)
	}
}

// TestTransactionIsOneBatch counts the service calls for the operations of a transaction, and the
// commands in the metrics.
func TestTransactionIsOneBatch(t *testing.T) {
	s := newService(t)
	server := serve(t, resp.Options{Service: s})
	c := dial(t, server)
	c.do("MULTI")
	for range 20 {
		c.do("TT.ADD k")
	}
	if n := s.deals.Load(); n != 0 {
		t.Errorf("%d batches before EXEC", n)
	}
	if got, want := c.do("EXEC"), "[OK"+strings.Repeat(" OK", 19)+"]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := s.deals.Load(); n != 1 {
		t.Errorf("%d batches", n)
	}
	for _, line := range []string{"MULTI", "TT.ADD k N x", "EXEC", "PING"} {
		c.do(line)
	}
	got := metricsOf(t, server)
	for name, want := range map[string]float64{
		"twotier_resp_commands_total tt.add": 21,
		"twotier_resp_commands_total multi":  2,
		"twotier_resp_commands_total exec":   2,
		"twotier_resp_errors_total ERR":      1, "twotier_resp_errors_total EXECABORT": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// TestTokensInTransactions switches tokens, and withdraws one, while a transaction is open.
func TestTokensInTransactions(t *testing.T) {
	texts, store := tokensOf(t, map[string]string{"writer": "count", "reader": "read"})
	c := dial(t, serve(t, resp.Options{Service: newService(t), Tokens: store}))
	const aborted = "-EXECABORT Transaction discarded because of previous errors."
	const unread = "-NOPERM the token writer has not the role read"
	c.expect([][2]string{{"MULTI", "-NOAUTH Authentication required."},
		{"AUTH " + texts["writer"], "OK"}, {"MULTI", "OK"},
		{"TT.ADD k", "QUEUED"}, {"TT.COUNT k 1m", unread},
		{"EXEC", aborted}, {"MULTI", "OK"}, {"TT.SERIES k 1m", unread},
		{"EXEC", aborted}, {"MULTI", "OK"}, {"TT.ADD k", "QUEUED"},
		{"AUTH " + texts["reader"], "QUEUED"}, {"TT.ADD k", "QUEUED"},
		{"EXEC", "[OK OK -NOPERM the token reader has not the role count]"},
		{"TT.COUNT k 1m", "[1]"}, {"AUTH " + texts["writer"], "OK"},
		{"MULTI", "OK"}, {"TT.ADD k", "QUEUED"}})
	_, hash := token.New()
	keep := fmt.Sprintf("other %s count\n", hash)
	must.Succeed(t, store.Load([]byte(keep)))
	const noAuth = "NOAUTH Authentication required."
	c.expect([][2]string{{"TT.ADD k", "-" + noAuth},
		{"EXEC", "-EXECABORT Transaction discarded because of: " + noAuth},
		{"RESET", "RESET"}, {"EXEC", "-" + noAuth}})
}
