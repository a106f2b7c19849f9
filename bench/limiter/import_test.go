package limiter_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestImportOfRedisRate switches over from redis_rate, which is at its limit: the next event passes
// when redis_rate would have let it pass.
func TestImportOfRedisRate(t *testing.T) {
	program := proctest.NewProgramFrom(t, "../..")
	server := program.Serve(t, proctest.Options{})
	source := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: source.Addr()})
	defer rdb.Close()
	old := redis_rate.NewLimiter(rdb)
	limit := redis_rate.Limit{Rate: 10, Burst: 10, Period: 100 * time.Second}
	for i := range 10 {
		if r, err := old.Allow(t.Context(), "ann", limit); err != nil || r.Allowed != 1 {
			t.Fatalf("event %d: %+v, %v", i, r, err)
		}
	}
	refused, err := old.Allow(t.Context(), "ann", limit)
	if err != nil || refused.Allowed != 0 {
		t.Fatalf("the eleventh: %+v, %v", refused, err)
	}
	free := time.Now().Add(refused.RetryAfter)
	cmd := exec.Command(program.Path(t), "import", "--from", source.URL(), "--pattern",
		"rate:{key}", "--format", "redis_rate", "--limit", "10/100s")
	cmd.Env = append(os.Environ(), "TWOTIER_SERVER="+server.Base)
	out, err := cmd.CombinedOutput()
	must.Succeed(t, err)
	if !strings.Contains(string(out), "counted 10 events of 1 key") &&
		!strings.Contains(string(out), "counted 9 events of 1 key") { // ten seconds are over
		t.Errorf("%s", out)
	}
	var v struct {
		Allowed bool
		Retry   int64 `json:"retry_after_ms"`
	}
	ask := func() {
		must.Succeed(t, server.Ask("/v1/acquire", `{"key":"ann","limits":[{"window":"100s",`+
			`"max":10}]}`, &v))
	}
	if ask(); v.Allowed && time.Now().Before(free.Add(-10*time.Millisecond)) {
		t.Errorf("twotier lets an event pass %v too early", time.Until(free))
	}
	time.Sleep(time.Until(free.Add(20 * time.Millisecond)))
	if ask(); !v.Allowed {
		t.Errorf("twotier refuses for %d ms when redis_rate would let it pass", v.Retry)
	}
}
