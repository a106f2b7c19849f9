package cli_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/cli"
)

// server gives every call the same answer and keeps the last call.
type server struct {
	status      int
	contentType string
	answer      string
	asked       string
	token       string
	calls       int
	stopAt      int // the number of the call that calls stop; 0: none
	stop        func()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.asked = strings.TrimSpace(r.Method + " " + r.URL.RequestURI() + " " + string(body))
	s.token = r.Header.Get("Authorization")
	s.calls++
	if s.calls == s.stopAt {
		s.stop()
	}
	if s.contentType != "" {
		w.Header().Set("Content-Type", s.contentType)
	}
	if s.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if s.status != 0 {
		w.WriteHeader(s.status)
	}
	_, _ = io.WriteString(w, s.answer)
}

// exec runs one command line against s.
func (s *server) exec(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	web := httptest.NewServer(s)
	defer web.Close()
	return exec(t, []string{"TWOTIER_SERVER=" + web.URL}, args...)
}

func exec(t *testing.T, environ []string, args ...string) (stdout string, err error) {
	t.Helper()
	var out strings.Builder
	_, err = execute(t.Context(), cli.IO{Environ: environ, Stdout: &out, Stderr: io.Discard}, args)
	return out.String(), err
}

// execute runs one command line and returns the command that it names.
func execute(ctx context.Context, o cli.IO, args []string) (*cobra.Command, error) {
	root := &cobra.Command{Use: "twotier"}
	root.AddCommand(cli.Commands(o)...)
	cli.Prepare(root, o)
	root.SetArgs(args)
	return root.ExecuteContextC(ctx)
}

// scenario is a command line, the answer of the server, its question, and the output: all of
// it if want ends with a line, or else a part.
type scenario struct{ args, answer, asked, want string }

// run fails the test unless the command asks and prints as it should, and is refused if it should.
func (s scenario) run(t *testing.T, refused bool) {
	t.Helper()
	web := &server{answer: s.answer}
	got, err := web.exec(t, strings.Split(s.args, " ")...)
	if refused != errors.Is(err, cli.ErrRefused) || !refused && err != nil {
		t.Errorf("%s: %v", s.args, err)
	}
	if s.asked != "" && web.asked != s.asked {
		t.Errorf("%s: asked %s\nwant  %s", s.args, web.asked, s.asked)
	}
	if got != s.want && (strings.HasSuffix(s.want, "\n") || !strings.Contains(got, s.want)) {
		t.Errorf("%s: printed\n%s\nwant\n%s", s.args, got, s.want)
	}
}

func TestRequestsAndAnswers(t *testing.T) {
	const acquired = `{"allowed":true,"limits":[{"window":"1m","max":15,"count":4,"remaining":11},{"window":"24h","max":50,"count":4,"remaining":46}],"retry_after_ms":0,"source":"memory"}`
	for _, s := range []scenario{
		{"add alice", `{"key":"alice","counts":[],"over":false,"source":"memory"}`,
			`POST /v1/add {"key":"alice","n":1}`,
			"added 1 to alice (memory)\n"},
		{"add -n 3 alice --ns x --ts 1700000000000 --ack redis --limit 1m=15 --limit 50/24h",
			`{"key":"alice","counts":[{"window":"1m","count":4,"min":3,"max":5},{"window":"24h","count":51,"min":51,"max":51}],"over":true,"source":"owner","degraded":true}`,
			`POST /v1/add {"ns":"x","key":"alice","n":3,"limits":[{"window":"1m","max":15},{"window":"24h","max":50}],"ts":1700000000000,"ack":"redis"}`,
			`added 3 to alice, over the limit (owner, degraded)
WINDOW  COUNT  MIN  MAX  LIMIT
1m          4    3    5     15
24h        51   51   51     50  over
`},
		{"add alice -n -2",
			`{"key":"alice","counts":[],"over":false,"source":"memory"}`,
			`POST /v1/add {"key":"alice","n":-2}`,
			"took up to 2 back from alice (memory)\n"},
		{"count alice",
			`{"key":"alice","counts":[{"window":"1m","count":3,"min":2,"max":3,"bucket_ms":1000}],"source":"owner","age_ms":1250,"degraded":false}`,
			`GET /v1/count?key=alice&window=1m%2C1h%2C24h`,
			"alice (owner, last in step with the store 1.25s ago)\nWINDOW  COUNT  MIN  MAX\n1m  " +
				"        3    2    3\n"},
		{"count alice --window 1m",
			`{"key":"alice","counts":[{"window":"1m","count":3,"min":2,"max":3,"bucket_ms":1000}],"source":"memory","age_ms":250,"degraded":false}`,
			`GET /v1/count?key=alice&window=1m`,
			"alice (memory)\nWINDOW  COUNT  MIN  MAX\n1m          3    2    3\n"},
		{"count --at 17 --ns x --window 37m -- -n",
			`{"key":"-n","counts":[],"source":"memory"}`,
			`GET /v1/count?at=17&key=-n&ns=x&window=37m`,
			"-n (memory)\n"},
		{"count a\tb", `{"key":"a\tb","counts":[],"source":"memory"}`,
			`GET /v1/count?key=a%09b&window=1m%2C1h%2C24h`,
			"\"a\\tb\" (memory)\n"},
		{"acquire alice --limit 15/1m,50/24h", acquired,
			`POST /v1/acquire {"key":"alice","n":1,"limits":[{"window":"1m","max":15},{"window":"24h","max":50}]}`,
			`allowed (memory)
KEY    WINDOW  LIMIT  COUNT  REMAINING
alice  1m         15      4         11
alice  24h        50      4         46
`},
		{"acquire alice --ns x --rule login --rule tight",
			`{"allowed":true,"limits":[{"window":"1m","max":15,"count":4,"remaining":11,"rule":"login"},` +
				`{"window":"1m","max":1,"count":4,"remaining":0,"refused":true,"rule":"tight","shadow":true}],"retry_after_ms":0,"source":"memory","rules_version":7}`,
			`POST /v1/acquire {"ns":"x","key":"alice","n":1,"rules":["login","tight"]}`,
			`allowed (memory)
KEY    WINDOW  LIMIT  COUNT  REMAINING
alice  1m         15      4         11  login
alice  1m          1      4          0  tight, in shadow, refused
`},
		{"acquire alice --limit 9/day@Asia/Shanghai,99/month.14@Europe/Lisbon --json",
			`{"allowed":true}`,
			`POST /v1/acquire {"key":"alice","n":1,"limits":[{"window":"day@Asia/Shanghai","max":9},` +
				`{"window":"month.14@Europe/Lisbon","max":99}]}`, `{"allowed":true}` + "\n"},
		{"count alice --window 2w,month@Europe/Lisbon",
			`{"key":"alice","counts":[{"window":"month@Europe/Lisbon","count":3,"min":3,"max":3,"bucket_ms":1}],"source":"memory"}`,
			`GET /v1/count?key=alice&window=2w%2Cmonth%40Europe%2FLisbon`,
			"alice (memory)\nWINDOW               COUNT  MIN  MAX\n" +
				"month@Europe/Lisbon      3    3    3\n"},
		{"acquire alice --limit 15/1m --concurrent 2 --hold 90s --on-expiry release",
			`{"allowed":true,"limits":[{"window":"1m","max":15,"count":4,"remaining":11},` +
				`{"concurrent":2,"open":1,"remaining":1}],"retry_after_ms":0,"source":"memory",` +
				`"hold":"AAAA","until":1000}`,
			`POST /v1/acquire {"key":"alice","n":1,"limits":[{"window":"1m","max":15},` +
				`{"concurrent":2}],"hold":"90s","on_expiry":"release"}`,
			"allowed (memory)\n" +
				"KEY    WINDOW  LIMIT  COUNT  REMAINING\n" +
				"alice  1m         15      4         11\n" +
				"alice  open        2      1          1\n" +
				"hold AAAA until 1970-01-01T00:00:01Z\n"},
		{"settle AAAA 1234", `{"settled":true,"over":["tokens/1m","limits[0]"]}`,
			`POST /v1/settle {"hold":"AAAA","n":1234}`,
			"settled with 1234, over tokens/1m and limits[0]\n"},
		{"settle AAAA 7", `{"settled":true,"late":true}`,
			`POST /v1/settle {"hold":"AAAA","n":7}`, "settled with 7, after the end of the hold\n"},
		{"settle AAAA 0", `{"settled":true,"repeated":true}`,
			`POST /v1/settle {"hold":"AAAA","n":0}`, "settled before, nothing was changed\n"},
		{"renew AAAA 5m", `{"hold":"AAAB","until":1000}`,
			`POST /v1/renew {"for":"5m","hold":"AAAA"}`, "AAAB\n"},
		{"acquire alice --json", `{"allowed":true}`,
			`POST /v1/acquire {"key":"alice","n":1}`, `{"allowed":true}` + "\n"},
		{"acquire alice --limit 15/1m --json", acquired,
			`POST /v1/acquire {"key":"alice","n":1,"limits":[{"window":"1m","max":15}]}`,
			acquired + "\n"},
		{"acquire a --rule login", `{"allowed":true,"limits":[` +
			`{"window":"1m","max":5,"count":4,"remaining":1,"rule":"login"}],` +
			`"near":["login","day/24h"],"retry_after_ms":0,"source":"memory"}`, "",
			`allowed (memory)
KEY  WINDOW  LIMIT  COUNT  REMAINING
a    1m          5      4          1  login
near: login, day/24h
`},
		{"distinct a v", `{"key":"a","counts":[],"over":false,"near":["devices"],"source":"memory"}`,
			`POST /v1/distinct {"key":"a","values":["v"],"window":"1h,24h"}`,
			"a (memory)\nnear: devices\n"},
		{"distinct a", `{"key":"a","counts":[],"source":"owner","degraded":false}`,
			`GET /v1/distinct?key=a&window=1h%2C24h`, "a (owner)\n"},
		{"distinct a", `{"key":"a","counts":[{"window":"1h","count":9,"error":0,` +
			`"bucket_ms":60000}],"source":"owner","degraded":false}`, "",
			"a (owner)\nWINDOW  DIFFERENT  ERROR\n1h              9  exact\n"},
		{"reset alice --ns x", `{"key":"alice","reset":true}`,
			`POST /v1/reset {"ns":"x","key":"alice"}`,
			"forgot x:alice\n"},
		{"top -n 2",
			`{"window":"1m","keys":[{"ns":"default","key":"alice","count":40},{"ns":"x","key":"b","count":2}]}`,
			`GET /v1/top?n=2&window=1m`,
			`KEY    NAMESPACE  COUNT
alice  default       40  ████████████████████
b      x              2  █
`},
		{"top --window 1h", `{"window":"1h","keys":[]}`,
			`GET /v1/top?n=20&window=1h`, "no events in the last 1h\n"},
		{"top --prefix user: --by refused", `{"keys":[]}`,
			`GET /v1/top?by=refused&n=20&prefix=user%3A&window=1m`, "no refusals of keys that " +
				"begin with user: in the last 1m since the nodes started; older ones: twotier " +
				"series @all/refused --ns @verdicts --window 1m\n"},
		{"top --by refused", `{"window":"1m","keys":[]}`,
			`GET /v1/top?by=refused&n=20&window=1m`, "no refusals in the last 1m since the " +
				"nodes started; older ones: twotier series @all/refused --ns @verdicts " +
				"--window 1m\n"},
		{"top --by shadow --window 24h", `{"window":"24h","keys":[]}`,
			`GET /v1/top?by=shadow&n=20&window=24h`, "no refusals in shadow in the last 24h " +
				"since the nodes started; older ones: twotier series @all/shadow_refused --ns " +
				"@verdicts --window 24h\n"},
		{"top --by concurrent -n 3",
			`{"keys":[{"ns":"sms","key":"r","count":7}]}`, `GET /v1/top?by=concurrent&n=3`,
			"KEY  NAMESPACE  OPEN\nr    sms           7  ████████████████████\n"},
		{"top --by concurrent", `{"keys":[]}`,
			`GET /v1/top?by=concurrent&n=20`, "no open holds\n"},
		{"holds bob --ns x",
			`{"key":"bob","open":2,"next_end_ms":24000,"source":"owner","degraded":true}`,
			`GET /v1/holds?key=bob&ns=x`,
			"bob: 2 open, the next ends in 24s (owner, degraded)\n"},
		{"holds bob", `{"key":"bob","open":0,"source":"memory","degraded":false}`,
			`GET /v1/holds?key=bob`, "bob: 0 open (memory)\n"},
		{"top --by shadow", `{"window":"1m","keys":[{"ns":"sms","key":"r","count":7}]}`,
			`GET /v1/top?by=shadow&n=20&window=1m`, "KEY  NAMESPACE  IN SHADOW\n" +
				"r    sms                7  ████████████████████\n"},
		{"series alice --ns x",
			`{"key":"alice","bucket_ms":60000,"points":[[0,0],[60000,0]]}`,
			`GET /v1/series?key=alice&ns=x&window=1h`,
			"alice: no events in the last 1h\n"},
		{"series alice",
			`{"key":"alice","bucket_ms":60000,"points":[[0,0],[60000,1],[120000,4],[180000,8],[240000,16],[300000,2],[360000,0],[420000,16],[480000,1],[540000,0]]}`,
			`GET /v1/series?key=alice&window=1h`,
			`alice: 48 events in the last 1h, a bar is 1m
      16 ┤    █  █
         ┤    █  █
         ┤    █  █
         ┤    █  █
         ┤   ██  █
         ┤   ██  █
         ┤  ███  █
         ┤ ▄████ █▄
       0 └──────────
          -10m   now
`},
	} {
		s.run(t, false)
	}
}

func TestErrorsOfTheServer(t *testing.T) {
	const problem = "application/problem+json"
	tests := []struct {
		name    string
		server  server
		want    []string
		printed bool // with --json
	}{
		{"refused", server{status: 422, contentType: problem,
			answer: `{"title":"Request refused","status":422,"detail":"window: 25h is longer than the namespace covers (24h)"}`}, []string{"window: 25h is longer"}, true},
		{"unavailable", server{status: 503, contentType: problem,
			answer: `{"title":"Can't answer now","status":503}`},
			[]string{"Can't answer now", "try again in 1 s"}, true},
		{"unknown", server{status: 503, contentType: problem,
			answer: `{"title":"Outcome unknown","detail":"no reply","outcome":"unknown"}`},
			[]string{"no reply", "may or may not"}, true},
		{"somebody else", server{status: 404, answer: "<html>"},
			[]string{"404 Not Found; is that a twotier server?"}, false},
		{"redirect", server{status: 302, answer: ""},
			[]string{"302 Found; is that a twotier server?"}, false},
		{"not JSON", server{answer: "hello"},
			[]string{"not answer with JSON; is that a twotier server?"}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.server.exec(t, "count", "alice", "--window", "25h", "--json")
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			if want := map[bool]string{true: test.server.answer + "\n"}[test.printed]; got != want {
				t.Errorf("printed %q, want %q", got, want)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	web := httptest.NewServer(nil)
	web.Close()
	for _, args := range [][]string{{"count", "alice"}, {"add", "alice"}} {
		_, err := exec(t, nil, append(args, "--server", web.URL)...)
		if err == nil || !strings.Contains(err.Error(),
			"is it running? start it with: twotier serve") ||
			!strings.Contains(err.Error(), web.URL) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-release
	}))
	defer web.Close()
	defer close(release)
	_, err := exec(t, nil, "add", "alice", "--server", web.URL, "--timeout", "20ms")
	if err == nil || !strings.Contains(err.Error(), "within 20ms") ||
		!strings.Contains(err.Error(), "may or may not have been counted") {
		t.Errorf("got %v", err)
	}
	_, err = exec(t, nil, "count", "alice", "--server", web.URL, "--timeout", "20ms")
	if err == nil || strings.Contains(err.Error(), "may or may not") {
		t.Errorf("got %v", err)
	}
}

func TestWrongUsage(t *testing.T) {
	tests := []struct{ args, want string }{
		{"add", "the KEY is missing"},
		{"add a b", `"b" is one more`},
		{"add ", "the KEY is empty"},
		{"add a -n 0", "--n: 0 events"},
		{"add a -n x", `invalid value "x" for -n: invalid syntax`},
		{"distinct", "the KEY is missing"},
		{"distinct a --window x", "--window: "},
		{"distinct a --limit 1/1m", "--limit needs a VALUE"},
		{"distinct a --rule devices", "--rule needs a VALUE"},
		{"explain", "the KEY is missing"},
		{"explain a b", `"b" is one more`},
		{"explain a --id n1.a", "--id is enough"},
		{"explain --id n1.a --ns x", "--id is enough"},
		{"add a --ack tape", `--ack: "tape" is not one of memory, redis, replica or disk`},
		{"add a --limit 15", `"15" is not MAX/WINDOW, such as 15/1m`},
		{"add a --limit x/1m", `"x/1m" is not MAX/WINDOW`},
		{"add a --limit 1/0s", `"0s" is not a window`},
		{"add a --limit -1/1m", "is not MAX/WINDOW"},
		{"add a --speed 1", "unknown flag --speed"},
		{"add a --limt 1/1m", "unknown flag --limt"},
		{"add a -limit 1/1m", "unknown flag -limit; did you mean --limit?"},
		{"bans --addr localhost:80", "unknown flag --addr; --server URL names the server"},
		{"rules --url localhost:80", "unknown flag --url; --server URL names the server"},
		{"add a -x", "unknown flag -x"},
		{"add a -n", "no value for -n"},
		{"add a --ns", "no value for --ns"},
		{"acquire a:1/1m --rule b --check b:1/1m", "either KEY with --limit or --rule"},
		{"acquire --limit 1/1m", "the KEY is missing"},
		{"acquire a --check b:1/1m", "not both"},
		{"acquire --check 1/1m", "is not KEY:MAX/WINDOW"},
		{"acquire --check a:b", "is not MAX/WINDOW"},
		{"count a --window 1m,x", `--window: "x" is not a window`},
		{"series a --window 1m,1h", `"1m,1h" is not a window`},
		{"top x", `unexpected argument "x"`},
		{"top -n 0", "--n: 0 is not a number of keys"},
		{"top --window ", "--window"},
		{"top --by name", `--by: "name" is none of count, refused, shadow and concurrent`},
		{"top --by concurrent --prefix a", "--prefix: --by concurrent lists all keys"},
		{"top --by concurrent --window 1m", "--window: --by concurrent lists the holds that are open now"},
		{"cluster x", "unexpected argument"},
		{"mode fast", `"fast" is neither two-tier nor redis`},
		{"mode redis now", `unexpected argument "now"`},
		{"mode redis", "--admin-token: missing"},
		{"reset", "the KEY is missing"},
		{"count a --server ftp://x", "--server: "},
		{"count a --server http://", "--server: "},
		{"count a --server http://127.0.0.1:99999", "--server: port"},
		{"count a --server 127.0.0.1:0", "--server: port"},
		{"count a --timeout 0s", "--timeout: "},
	}
	for _, test := range tests {
		isWrong(t, test.args, test.want)
	}
}

// isWrong fails the test unless a command line is wrong usage for that reason.
func isWrong(t *testing.T, line, reason string) {
	t.Helper()
	args := strings.Split(line, " ")
	var out strings.Builder
	cmd, err := execute(t.Context(), cli.IO{Stdout: &out, Stderr: io.Discard}, args)
	if !errors.As(err, new(*cli.UsageError)) || !strings.Contains(err.Error(), reason) {
		t.Errorf("%s: got %v, want wrong usage: %s", line, err, reason)
	}
	if !strings.HasPrefix(cmd.UseLine(), "twotier "+args[0]+" ") || out.String() != "" {
		t.Errorf("%s: usage %q, output %q", line, cmd.UseLine(), out.String())
	}
}

// TestHelpFitsTerminal checks that the help of every command fits and names every flag.
func TestHelpFitsTerminal(t *testing.T) {
	for _, c := range cli.Commands(cli.IO{}) {
		out, err := exec(t, nil, c.Name(), "--help")
		if same, _ := exec(t, nil, "help", c.Name()); err != nil || same != out {
			t.Errorf("%s: %v\n%s\n%s", c.Name(), err, out, same)
		}
		for line := range strings.Lines(out) {
			if len([]rune(strings.TrimSuffix(line, "\n"))) > 80 {
				t.Errorf("%s: longer than 80 columns: %s", c.Name(), line)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(out, "\n  -"+f.Name+" ") &&
				!strings.Contains(out, "\n  --"+f.Name+" ") {
				t.Errorf("%s: no word about %s in\n%s", c.Name(), f.Name, out)
			}
		})
	}
}

func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"add --ack ": "memory\nredis\nreplica\ndisk\n",
		"mode ":      "two-tier\nredis\n",
		"help ser":   "series\n",
		"acq":        "acquire\tcount events of a key if its limits allow them\n",
	} {
		out, err := exec(t, nil, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%s: %v, got\n%s", args, err, out)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, err := exec(t, nil, "completion", shell); err != nil ||
			!strings.Contains(out, "__complete") {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}

func TestServerWithoutScheme(t *testing.T) {
	s := &server{answer: `{"key":"a","counts":[],"source":"memory"}`}
	web := httptest.NewServer(s)
	defer web.Close()
	environ := []string{"TWOTIER_SERVER=http://127.0.0.1:1"}
	if _, err := exec(t, environ, "count", "a", "--server",
		strings.TrimPrefix(web.URL, "http://")); err != nil {
		t.Error(err)
	}
}
