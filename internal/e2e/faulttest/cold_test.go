package faulttest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// coldBed is a node whose keys are at their limits in Redis, but not in memory.
type coldBed struct {
	*bed
	onCold string
	next   int
}

// TestOnColdIsForAnOutageAlone asks for keys at their limits while Redis answers, but not with
// their counts: a replica without its primary, a server that loads its data, a value of another
// type. No such request is decided, whatever on-cold is. Then Redis is gone, and on-cold decides.
func TestOnColdIsForAnOutageAlone(t *testing.T) {
	for _, onCold := range []string{"allow", "deny"} {
		t.Run(onCold, func(t *testing.T) {
			slow := redistest.Config("key-load-delay 4000",
				"loading-process-events-interval-bytes 1024")
			b := &coldBed{newBed(t, []redistest.Option{slow}, "--on-cold", onCold,
				"--request-timeout", "1s"), onCold, 0}
			b.fill(40)
			b.masterDown()
			b.foreign()
			b.loading()
			b.down()
		})
	}
}

// TestColdKeysInShadow asks for a key that is not in memory while Redis is down: in shadow, on-cold
// does not refuse it.
func TestColdKeysInShadow(t *testing.T) {
	b := &coldBed{newBed(t, nil, "--on-cold", "deny", "--shadow"), "allow", 0}
	b.fill(1)
	b.redis.Kill()
	b.degraded()
	key := b.key()
	proctest.Until(t, "memory alone decides", func() bool {
		status, body := b.ask(key)
		return status == 200 && strings.Contains(body, `"degraded":true`)
	})
	if _, body := b.ask("other-key"); !strings.Contains(body, `"allowed":true`) {
		t.Error(body)
	}
	status, body, err := b.node.Post("/v1/distinct",
		`{"key":"values","values":["a"],"limits":[{"window":"1h","max":3}]}`)
	if err != nil || status != 200 || !strings.Contains(string(body), `"over":false`) {
		t.Errorf("%d %s, %v", status, body, err)
	}
}

// fill counts keys to their limit of 3, and starts a node that has none of them in memory.
func (b *coldBed) fill(keys int) {
	b.T.Helper()
	for i := range keys {
		b.node.MustPost("/v1/add", fmt.Sprintf(`{"key":"full-%d","n":3}`, i))
	}
	b.node.Flushed()
	b.node.Kill()
	b.restart()
	b.node.MustPost("/v1/add", `{"key":"other","ack":"redis"}`)
}

// key returns a key that has not been asked for yet.
func (b *coldBed) key() string {
	b.next++
	return fmt.Sprint("full-", b.next-1)
}

// ask acquires a key.
func (b *coldBed) ask(key string) (status int, body string) {
	b.T.Helper()
	status, got, err := b.node.Post("/v1/acquire",
		fmt.Sprintf(`{"key":%q,"limits":[{"window":"1h","max":3}]}`, key))
	must.Succeed(b.T, err)
	return status, string(got)
}

// undecided asks for some keys and checks that none of the requests is decided.
func (b *coldBed) undecided(why string) {
	b.T.Helper()
	for range 5 {
		status, body := b.ask(b.key())
		if status != 503 || !strings.Contains(body, ":unavailable") {
			b.T.Errorf("%s: %d %s", why, status, body)
		}
	}
}

// masterDown makes Redis a replica that has no primary and serves nothing.
func (b *coldBed) masterDown() {
	b.T.Helper()
	b.do("CONFIG", "SET", "replica-serve-stale-data", "no")
	b.do("REPLICAOF", "127.0.0.1", "1")
	b.undecided("MASTERDOWN")
	b.do("REPLICAOF", "NO", "ONE")
	b.served("after MASTERDOWN")
}

// served waits until keys are decided by the counts in Redis.
func (b *coldBed) served(when string) {
	b.T.Helper()
	key := b.key()
	proctest.Until(b.T, "a key is refused by its limit "+when, func() bool {
		status, body := b.ask(key)
		if strings.Contains(body, `"allowed":true`) && !strings.Contains(body, `"degraded":true`) {
			b.T.Fatalf("%s: %s", when, body)
		}
		return status == 200 && !strings.Contains(body, `"degraded":true`)
	})
}

// foreign replaces a key by a value of another type.
func (b *coldBed) foreign() {
	b.T.Helper()
	b.do("SET", b.Hash("full-39"), "foreign")
	for range 5 {
		if status, body := b.ask("full-39"); status != 503 {
			b.T.Errorf("a foreign value: %d %s", status, body)
		}
		if status, body := b.ask(b.key()); status != 200 || strings.Contains(body, `"degraded":true`) {
			b.T.Errorf("a key beside a foreign value: %d %s", status, body)
		}
	}
	b.do("DEL", b.Hash("full-39"))
}

// loading restarts Redis with much data to load.
func (b *coldBed) loading() {
	b.T.Helper()
	b.do("EVAL", `for i = 1, 10000 do redis.call('SET', 'pad' .. i, string.rep('x', 100)) end
		return 1`, 0)
	b.do("SAVE")
	b.redis.Kill()
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		b.redis.Restart(b.T)
	}()
	isLoading := func() bool {
		err := b.redis.Do("PING").Err()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	}
	proctest.Until(b.T, "Redis is loading", isLoading)
	time.Sleep(3 * time.Second) // the node has noticed, and asks each partition again
	b.undecided("LOADING")
	if !isLoading() {
		b.T.Error("Redis has loaded its data before the end: this shows nothing")
	}
	b.do("CONFIG", "SET", "key-load-delay", "0")
	<-loaded
	b.served("after LOADING")
}

// down ends Redis.
func (b *coldBed) down() {
	b.T.Helper()
	b.redis.Kill()
	b.degraded()
	key := b.key()
	proctest.Until(b.T, "on-cold decides", func() bool {
		status, body := b.ask(key)
		return status == 200 && strings.Contains(body, `"degraded":true`) &&
			strings.Contains(body, `"allowed":true`) == (b.onCold == "allow")
	})
}
