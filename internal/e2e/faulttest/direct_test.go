package faulttest

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// newDirectBed starts a node in Redis mode. A short request timeout causes many unknown outcomes.
func newDirectBed(t *testing.T, opts ...redistest.Option) *bed {
	t.Helper()
	// The node does not start without Redis, whose first answer takes time on a busy machine.
	return newBed(t, opts, "--mode", "redis", "--request-timeout", "500ms", "--redis-timeout", "5s")
}

// someFail returns a function that waits until another request has failed or has an unknown
// outcome, which is how the workers notice a fault.
func (b *bed) someFail() func() {
	return func() {
		b.T.Helper()
		_, u, f := b.Ledger.Totals()
		proctest.Until(b.T, "requests fail", func() bool {
			_, u2, f2 := b.Ledger.Totals()
			return u2+f2 > u+f
		})
	}
}

func TestRedisModeFault4RedisGoneAndBack(t *testing.T) {
	b := newDirectBed(t, redistest.AOF())
	tr := b.Traffic()
	tr.Accept(200)
	for range 2 {
		b.redis.Kill()
		b.someFail()()
		tr.Pass(50)
		b.redis.Restart(t)
		tr.Accept(200)
	}
	tr.Stop()
	b.settle("redis mode, 4 Redis gone and back", 0)
}

// rejected matches Redis's count of scripts that it refused to run.
var rejected = regexp.MustCompile(`cmdstat_eval(sha)?:\S*,rejected_calls=[1-9]`)

// TestRedisModeReplyLostThenRefused lets Redis count, loses the reply, and makes Redis refuse the
// script when it is sent again. The refusal reveals nothing about the first attempt, so the outcome
// is unknown.
func TestRedisModeReplyLostThenRefused(t *testing.T) {
	// With such a long timeout the script is sent again until Redis has refused it.
	b := newBed(t, nil, "--mode", "redis", "--request-timeout", "10m")
	tr := (&proctest.Traffic{T: t, Ledger: b.Ledger}).To(b.node.Base).Open()
	refused := func() bool {
		return rejected.MatchString(b.redis.Do("INFO", "commandstats").String())
	}
	for tries := 0; !refused(); tries++ {
		if tries == 10 {
			t.Fatal("Redis has never refused another attempt")
		}
		tr.Add("a", 1, false)
		lost := b.proxy.Stats().Swallowed
		b.proxy.SwallowReplies(true)
		got := make(chan proctest.Outcome, 1)
		go func() { got <- tr.Add("a", 1, false) }()
		proctest.Until(t, "Redis has counted", func() bool {
			held, err := b.Stored([]string{"a"})
			return err == nil && held["a"] == int64(2*tries+2) && b.proxy.Stats().Swallowed > lost
		})
		b.do("ACL", "SETUSER", "default", "-evalsha", "-eval")
		// Without replies a new connection can't be set up, and no attempt would reach Redis any
		// more. A reply of before may get through now: then the outcome is known, and no attempt is
		// refused.
		b.proxy.Pass()
		o := <-got
		if want := map[bool]proctest.Outcome{true: proctest.Unknown,
			false: proctest.Acked}[refused()]; o != want {
			t.Errorf("the outcome of what Redis has counted is %d, want %d", o, want)
		}
		b.do("ACL", "SETUSER", "default", "+@all")
		proctest.Until(t, "Redis is up", func() bool {
			return tr.Add("b", 1, false) == proctest.Acked
		})
	}
	b.settle("redis mode, reply lost, then refused", 0)
}

func TestRedisModeWithRedisDown(t *testing.T) {
	b := newDirectBed(t)
	counts := func() bool {
		status, _, err := b.node.Post("/v1/add", `{"key":"a"}`)
		return err == nil && status == http.StatusOK
	}
	proctest.Until(t, "it counts", counts)
	b.redis.Kill()
	for path, body := range map[string]string{
		"/v1/add": `{"key":"a"}`, "/v1/acquire": `{"key":"a","limits":[{"window":"1m","max":5}]}`,
	} {
		status, out, err := b.node.Post(path, body)
		if err != nil || status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s %v, want 503", path, status, out, err)
		}
	}
	if status,
		out := b.node.Get("/v1/count?key=a&window=1m"); status != http.StatusServiceUnavailable {
		t.Errorf("count: %d %s, want 503", status, out)
	}
	if status, out := b.node.Get("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("readyz: %d %s, want 503", status, out)
	}
	if status, out := b.node.Get("/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d %s, want 200", status, out)
	}
	s, err := program.TryServe(t, proctest.Options{}, b.Command(0)...)
	if err == nil {
		t.Fatal("a second one starts without Redis")
	}
	proctest.Wait(t, "it ends", s.Done())
	if status := s.ExitCode(); status != 1 || !strings.Contains(s.Log.String(), "redis") {
		t.Errorf("exit status %d, %s", status, s.Log.String())
	}
	b.redis.Restart(t)
	proctest.Until(t, "it counts again", counts)
}
