package faulttest

import (
	"testing"

	"twotier.dev/twotier/internal/testing/faultproxy"
	"twotier.dev/twotier/internal/testing/proctest"
)

// script is a part of every request that counts.
const script = "evalsha"

// loseReplies loses replies in every way: of single requests, then all of them, with and without
// closing the connections.
func loseReplies(b *bed, tr *proctest.Traffic, noticed func()) {
	b.T.Helper()
	tr.Pass(100)
	for range 5 {
		proctest.Wait(b.T, "a reply is lost", b.proxy.SwallowNext(script))
	}
	proctest.Wait(b.T, "replies are lost", b.proxy.SwallowMatching(script, 5, false))
	for _, hangUp := range []bool{true, false} {
		b.proxy.SwallowReplies(hangUp)
		noticed()
		tr.Pass(50)
		b.proxy.Pass()
		tr.Pass(50)
	}
	proctest.Wait(b.T, "a reply is cut", b.proxy.CutNext(script, 3))
	tr.Pass(50)
	tr.Stop()
}

func loseRequests(b *bed, tr *proctest.Traffic, noticed func()) {
	b.T.Helper()
	tr.Pass(100)
	for _, mode := range []func(*faultproxy.Proxy){(*faultproxy.Proxy).DropRequests,
		(*faultproxy.Proxy).Hang} {
		mode(b.proxy)
		noticed()
		tr.Pass(50)
		b.proxy.Pass()
		tr.Pass(50)
	}
	b.proxy.Refuse()
	b.proxy.CloseAll()
	noticed()
	tr.Pass(50)
	b.proxy.Pass()
	tr.Pass(50)
	tr.Stop()
}

// moreFail returns a function that waits until more batches have failed than before.
func (b *bed) moreFail() func() {
	return func() {
		b.T.Helper()
		b.failSince(b.failing())
	}
}

// failSince waits until more batches have failed than before.
func (b *bed) failSince(before int64) {
	b.T.Helper()
	proctest.Until(b.T, "batches fail", func() bool { return b.failing() > before })
}

func TestFault1ReplyLost(t *testing.T) {
	b := newBed(t, nil)
	loseReplies(b, b.Traffic(), b.moreFail())
	b.settle("1 reply lost", 0)
	if b.unknowns() == 0 {
		t.Error("no batch was sent again")
	}
}

func TestFault2RequestLost(t *testing.T) {
	b := newBed(t, nil)
	loseRequests(b, b.Traffic(), b.moreFail())
	b.settle("2 request lost", 0)
}

func TestFault3RedisSlow(t *testing.T) {
	b := newBed(t, nil)
	tr := b.Traffic()
	tr.Pass(100)
	before := b.failing() // the pause may end before two have failed
	b.do("CLIENT", "PAUSE", 4000, "ALL")
	b.failSince(before)
	tr.Pass(100)
	b.redis.Pause()
	b.moreFail()()
	b.degraded()
	tr.Accept(200)
	if a := b.node.Count(proctest.HotKey, "24h"); a.Source != "degraded" || !a.Degraded {
		t.Errorf("a count while Redis hangs: %+v", a)
	}
	b.redis.Resume()
	tr.Accept(200)
	tr.Stop()
	b.settle("3 Redis hung", 0)
}
