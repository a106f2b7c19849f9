package clustertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/proctest"
)

// banRules are two rules, one of which bans.
const banRules = "rules:\n- {name: login, limits: [3/24h], ban: 1h}\n" +
	"- {name: plain, namespace: other, limits: [1000/24h]}\n"

// banned is the answer to an acquire.
type banned struct {
	Allowed   bool
	RefusedBy []string `json:"refused_by"`
	Bans      []struct {
		Rule, Key string
		Until     int64
		Started   bool
	}
	RetryAfter int64 `json:"retry_after_ms"`
}

// asks sends an acquire of n events of a key by the banning rule to a node, with ack=redis.
func (c *cluster) asks(i int, key string, n int) banned {
	c.T.Helper()
	return c.asksFor(i, key, n, "redis")
}

// asksFor is asks with another ack.
func (c *cluster) asksFor(i int, key string, n int, ack string) (a banned) {
	c.T.Helper()
	body := fmt.Sprintf(`{"key":%q,"n":%d,"rules":["login"],"ack":%q}`, key, n, ack)
	proctest.UntilNil(c.T, "an answer", func() error {
		a = banned{}
		return c.Nodes[i].Ask("/v1/acquire", body, &a)
	})
	return a
}

// stillBanned fails the test unless every running node refuses one event because of the ban, and
// reports its end.
func (c *cluster) stillBanned(key string, until int64, when string) {
	c.T.Helper()
	for _, i := range c.Running() {
		if a := c.asks(i, key, 1); a.Allowed || len(a.Bans) != 1 || a.Bans[0].Started ||
			a.Bans[0].Key != key || a.Bans[0].Until != until ||
			a.RetryAfter <= 0 || a.RetryAfter > 3_660_000 ||
			strings.Join(a.RefusedBy, " ") != "login/ban" {
			c.T.Errorf("%s, node %d: %+v, want a ban until %d", when, i, a, until)
		}
	}
}

// breach bans a key at a node: it adds two events, after which a third is allowed, but not two
// more. It returns when the ban ends.
func (c *cluster) breach(i int, key string) (until int64) {
	c.T.Helper()
	if a := c.asks(i, key, 2); !a.Allowed {
		c.T.Errorf("two of three: %+v", a)
	}
	a := c.asks(i, key, 2)
	if a.Allowed || len(a.Bans) != 1 || !a.Bans[0].Started || a.RetryAfter < 3_600_000 {
		c.T.Fatalf("the breach: %+v", a)
	}
	return a.Bans[0].Until
}

// TestABanOutlivesItsOwner bans a key at each of three nodes. The other nodes refuse it, for every
// kind of request, and nothing is counted; they still do after its owner was killed, in Redis mode,
// and after all nodes were started again. Once the ban is lifted, the counts decide.
func TestABanOutlivesItsOwner(t *testing.T) {
	c := start(t, 3, "--admin-token", rulesToken, "--resp", "127.0.0.1:0")
	c.putRules(0, 0, banRules)
	c.haveRules(1)
	var keys []string
	var ends []int64
	for i := range 3 {
		keys = append(keys, c.keyOf((i+1)%3, "user=ban"))
		ends = append(ends, c.breach(i, keys[i]))
		c.stillBanned(keys[i], ends[i], "after the breach")
	}
	key, until := keys[0], ends[0] // owned by node 1
	c.bannedEverywhere(key)
	c.listed(0, ends...)
	c.Kill(1)
	c.stillBanned(key, until, "after its owner was killed")
	c.Serve(1)
	c.haveRules(1)
	c.stillBanned(key, until, "after its owner is back")
	c.modeOf(0, "redis")
	c.stillBanned(key, until, "in Redis mode")
	c.modeOf(0, "two-tier")
	c.startAgain(c.Kill, 3)
	c.haveRules(1)
	c.stillBanned(key, until, "after all nodes were started again")
	c.listed(2, until) // no request has asked about the others
	for lifted := range 2 {
		_, text, _ := admin(t, c.Nodes[2], "POST", "/v1/unban",
			fmt.Sprintf(`{"rule":"login","key":%q}`, key), "Content-Type", "application/json")
		if want := fmt.Sprintf(`"lifted":%v`, lifted == 0); !strings.Contains(text, want) {
			t.Errorf("unban %d: %s", lifted, text)
		}
	}
	if a := c.asks(0, key, 1); !a.Allowed {
		t.Errorf("the third event after the ban was lifted: %+v", a)
	}
	c.stillBanned(keys[1], ends[1], "although another ban was lifted")
}

// listed fails the test unless a node lists bans that end at these times, and no others.
func (c *cluster) listed(i int, until ...int64) {
	c.T.Helper()
	_, text, _ := admin(c.T, c.Nodes[i], "GET", "/v1/bans?rule=login", "")
	found := strings.Count(text, `"retry_after_ms"`)
	for _, end := range until {
		if !strings.Contains(text, fmt.Sprintf(`"until":%d,`, end)) {
			found = -1
		}
	}
	if found != len(until) {
		c.T.Errorf("want bans until %v: %s", until, text)
	}
}

// bannedEverywhere asks about a banned key at each node through every listener, and then checks
// that nothing was counted, for that key or for another key in the same requests.
func (c *cluster) bannedEverywhere(key string) {
	t := c.T
	t.Helper()
	other := c.keyOf(2, "beside")
	both := fmt.Sprintf(`{"op":"acquire","count_denied":true,"checks":[`+
		`{"key":%q,"rules":["plain"]},{"key":%q,"rules":["login"]}]}`, other, key)
	for i := range 3 {
		_, text, err := c.Nodes[i].Post("/v1/batch", `{"ops":[`+both+`,`+both+`]}`)
		if err != nil || strings.Count(string(text), `"refused_by":["checks[1].login/ban"]`) != 2 {
			t.Errorf("batch at node %d: %s %v", i, text, err)
		}
		_, text, err = c.Nodes[i].Post("/v1/acquire", fmt.Sprintf(
			`{"key":%q,"rules":["login"],"dry_run":true}`, key))
		if err != nil || !strings.Contains(string(text), `"refused_by":["login/ban"]`) {
			t.Errorf("dry run at node %d: %s %v", i, text, err)
		}
		status, _, header := admin(t, c.Nodes[i], "GET", "/v1/forward-auth?rule=login&key=User", "",
			"User", strings.TrimPrefix(key, "user="))
		if retry := header.Get("Retry-After"); status != 429 || len(retry) != 4 {
			t.Errorf("forward-auth at node %d: %d, retry after %s", i, status, retry)
		}
		client := redis.NewClient(&redis.Options{Addr: c.Nodes[i].Resp})
		values, err := client.Do(t.Context(), "TT.ACQUIRE", key, "RULE", "login").Int64Slice()
		_ = client.Close()
		if err != nil || values[0] != 0 || values[1] < 3_000_000 {
			t.Errorf("TT.ACQUIRE at node %d: %v %v", i, values, err)
		}
	}
	for ns, counted := range map[string]string{"default": key, "other": other} {
		_, text := c.Nodes[0].Get(fmt.Sprintf("/v1/count?ns=%s&key=%s&window=24h", ns, counted))
		if want := map[string]string{"default": `"count":2,`, "other": `"count":0,`}[ns]; !strings.
			Contains(string(text), want) {
			t.Errorf("%s in %s: %s, want %s", counted, ns, text, want)
		}
	}
}
