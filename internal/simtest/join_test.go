package simtest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"twotier/internal/node"
	"twotier/syncer"
)

// TestJoinDuringAChangeOfMode has a node join while the others, whose counts are not in Redis yet, are about to change the mode, which fails as
// Redis is down. It begins with what they know.
func TestJoinDuringAChangeOfMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(t)
		defer w.end()
		const limit = 20
		p := w.alive()[0]
		for _, q := range w.alive() {
			q.store.SetDown(true)
		}
		keys := make([]string, 60)
		for i := range keys {
			keys[i] = fmt.Sprint("m", i)
			for range limit {
				if _, err := p.do(adding(keys[i]), 2*time.Second); err != nil {
					t.Fatal(err)
				}
			}
		}
		changed := make(chan error, 1)
		go func() { changed <- p.setMode(node.ModeRedis) }()
		time.Sleep(100 * time.Millisecond)
		q, err := w.start(4)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-changed; err == nil {
			t.Error("the mode has changed without Redis")
		}
		owned := w.keysAmong(q, keys)
		for _, key := range owned {
			res, err := q.do(acquiring(limit, key), 2*time.Second)
			if err != nil || res.Allowed || res.Source == syncer.SourceFallback {
				t.Errorf("%s: %v, allowed %v (%s), although all is used up", key, err, res.Allowed, res.Source)
			}
		}
		if len(owned) == 0 {
			t.Error("no key moved")
		}
		for _, q := range w.alive() {
			q.store.SetDown(false)
		}
		time.Sleep(10 * time.Second)
	})
}

// keysAmong returns those of some keys that a process owns.
func (w *world) keysAmong(p *proc, keys []string) (owned []string) {
	for _, key := range keys {
		if p.ring.Table().Mine(w.partition(key)) {
			owned = append(owned, key)
		}
	}
	return owned
}

func (p *proc) setMode(mode node.Mode) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.node.SetMode(ctx, mode)
}
