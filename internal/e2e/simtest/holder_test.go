package simtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
)

// holder is a client of the HTTP API on a separate host. It acquires with holds, settles and renews
// the holds of all holders, and reads calendar windows.
type holder struct{ asker }

// holders is the number of holders.
const holders = 3

func (w *world) newHolder(i int) *holder {
	return &holder{asker{w, w.net.Start(fmt.Sprint("10.0.3.", i)),
		rand.New(rand.NewPCG(w.seed, uint64(400+i)))}}
}

// run sends requests until it is stopped. It runs beside the clients, who are the majority.
func (h *holder) run(stop <-chan struct{}) {
	defer h.host.Stop()
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(h.rnd.Int64N(int64(4 * h.w.plan.pause)))):
		}
		if p := h.w.pick(h.rnd); p != nil {
			h.act(p)
		}
	}
}

func (h *holder) act(p *proc) {
	one := h.w.holds.pick(h.rnd)
	switch n := h.rnd.IntN(100); {
	case n < 12:
		h.read(p, fmt.Sprint("quota", h.rnd.IntN(quotaKeys)))
	case n < 16 && h.w.plan.exact:
		h.settleAfterReset(p)
	case n < 52 || one == nil:
		h.acquire(p, h.draw())
	case n < 65:
		h.renew(p, one)
	default:
		h.settle(p, one)
	}
}

// The keys of holds: without limits that refuse, with a limit on how many are open, and with a
// limit on a calendar period.
const (
	heldKeys   = 3
	leasedKeys = 3
	quotaKeys  = 2
)

// mostOpen returns how many holds of a key may be open, 0 if that is not limited.
func mostOpen(key string) int64 {
	if strings.HasPrefix(key, "leased") {
		return 1 + int64(key[len(key)-1]-'0')
	}
	return 0
}

// quotaOf returns the limit on calendar periods of a key, if it has one. Both periods begin when
// the clocks of UTC begin an hour, some time after the schedule.
func quotaOf(key string) (l twotier.Limit, found bool) {
	text := "day@Atlantic/Azores"
	switch key {
	case "quota0":
		text = "hour"
	case "quota1":
	default:
		return l, false
	}
	period, err := twotier.ParsePeriod(text)
	if err != nil {
		panic(err) // the zones are embedded
	}
	return twotier.Limit{Period: period, Max: 25}, true
}

// awaitPeriod waits until shortly before a calendar period begins.
func (w *world) awaitPeriod() {
	rnd := rand.New(rand.NewPCG(w.seed, 4))
	time.Sleep(time.Hour - time.Duration(2+rnd.IntN(25))*time.Second)
	w.began = time.Now()
}

// heldOp is an acquire with a hold, or without one.
type heldOp struct {
	Checks      []heldCheck `json:"checks"`
	Hold        string      `json:"hold,omitempty"`
	OnExpiry    string      `json:"on_expiry,omitempty"`
	Charge      bool        `json:"charge,omitempty"`
	CountDenied bool        `json:"count_denied,omitempty"`
	DryRun      bool        `json:"dry_run,omitempty"`
	Ack         string      `json:"ack,omitempty"`
	lasts       time.Duration
}

type heldCheck struct {
	Key    string      `json:"key"`
	N      int64       `json:"n"`
	Limits []heldLimit `json:"limits,omitempty"`
}

type heldLimit struct {
	Concurrent int64  `json:"concurrent,omitempty"`
	Window     string `json:"window,omitempty"`
	Zone       string `json:"zone,omitempty"`
	Max        *int64 `json:"max,omitempty"`
}

// heldAnswer is the answer to a heldOp.
type heldAnswer struct {
	Allowed bool
	Hold    string
	Checks  []struct {
		Key     string
		Allowed bool
		Limits  []struct {
			Concurrent, Open int64
			Refused          bool
		}
	}
	Source   string
	Degraded bool
}

// draw returns an acquire of one to three keys, mostly with a hold.
func (h *holder) draw() (op heldOp) {
	if h.rnd.IntN(4) == 0 {
		op.Ack = "redis"
	}
	if op.lasts = time.Second + h.upTo(12*time.Second); h.rnd.IntN(6) == 0 {
		op.lasts += time.Minute
	}
	op.Charge, op.DryRun = h.rnd.IntN(12) == 0, h.rnd.IntN(15) == 0
	op.CountDenied = !op.Charge && h.rnd.IntN(15) == 0
	list := []string{fmt.Sprint("held", h.rnd.IntN(heldKeys)),
		fmt.Sprint("leased", h.rnd.IntN(leasedKeys)), fmt.Sprint("quota", h.rnd.IntN(quotaKeys))}
	h.rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	leases := false
	list = list[:1+h.rnd.IntN(3)*h.rnd.IntN(2)]
	if strings.HasPrefix(list[0], "held") && h.rnd.IntN(3) == 0 {
		list = append(list, list[0]) // one key in two checks
	}
	for _, key := range list {
		op.Checks = append(op.Checks, checkOf(key, h.rnd.Int64N(4)))
		leases = leases || mostOpen(key) > 0
	}
	if leases || h.rnd.IntN(3) > 0 {
		op.Hold = fmt.Sprintf("%dms", op.lasts.Milliseconds())
	}
	if op.Hold != "" && !op.isOnQuota() && op.lasts < lastsReleased && h.rnd.IntN(3) == 0 {
		op.OnExpiry = "release"
	}
	return op
}

// checkOf returns the check of a key with all of its limits.
func checkOf(key string, n int64) heldCheck {
	most := int64(1 << 30)
	c := heldCheck{Key: key, N: n, Limits: []heldLimit{{Window: "24h", Max: &most}}}
	if open := mostOpen(key); open > 0 {
		c.Limits = append(c.Limits, heldLimit{Concurrent: open})
	}
	if quota, found := quotaOf(key); found {
		c.N = max(1, n)
		c.Limits = append(c.Limits, heldLimit{Window: quota.Period.Unit().String(),
			Zone: quota.Period.Zone(), Max: &quota.Max})
	}
	return c
}

// upTo returns a random duration.
func (h *holder) upTo(most time.Duration) time.Duration {
	return time.Duration(h.rnd.Int64N(int64(most)))
}

// names lists the keys and what is to be counted of them.
func (op *heldOp) names() (list string) {
	for _, c := range op.Checks {
		list += fmt.Sprintf("%s %+d ", c.Key, c.N)
	}
	return list
}

// post sends a request to a process. Without an answer, it may have been executed; it was not sent
// if the error is errNotSent.
func (h *holder) post(p *proc, path string, request, answer any) (status int, err error) {
	body, err := json.Marshal(request)
	must.Succeed(h.w.t, err)
	r, err := h.send(p, "POST", path, body, asJSON)
	switch {
	case errors.Is(err, errNotSent):
		return 0, err
	case err != nil || p.dead.Load() || strings.Contains(string(r.text), `"outcome":"unknown"`):
		return 0, nil
	case r.status == http.StatusOK:
		if err := json.Unmarshal(r.text, answer); err != nil {
			h.w.t.Errorf("node %s answers %s: %v", p.id, r.text, err)
		}
	case r.status == http.StatusGone, strings.Contains(string(r.text), "the hold ended before"):
	default:
		h.refused(p, r)
	}
	return r.status, nil
}

// acquire acquires keys, and records what that has counted.
func (h *holder) acquire(p *proc, op heldOp) {
	w := h.w
	for _, c := range op.Checks {
		w.ledger.of(c.Key, func(*account) {}) // as in client.do
	}
	defer w.enter(p)()
	v := verdict{asked: time.Now(), by: p.id, ip: p.ip}
	leases := w.holds.expect(&op, v.asked)
	var got heldAnswer
	status, err := h.post(p, "/v1/acquire", &op, &got)
	v.told, v.source, v.degraded = time.Now(), twotier.Source(got.Source), got.Degraded
	for _, c := range op.Checks {
		w.journal.note("client: %s %+d at %s, asked at %s with %s, hold %s %s, charge %v, "+
			"denied %v, dry run %v: %d %v %+v", c.Key, c.N, p.id, v.asked.Format("05.000000"),
			op.names(), op.Hold, op.OnExpiry, op.Charge, op.CountDenied, op.DryRun, status, err,
			got)
	}
	switch {
	case err != nil || status > 0 && status != http.StatusOK:
		w.holds.forget(leases)
	case status == 0:
		if op.DryRun {
			w.holds.forget(leases)
			return
		}
		for _, c := range op.Checks {
			w.ledger.doubt(c.Key, c.N, v.asked.Add(late))
			w.holds.quota(c.Key, func(q *quota) {
				q.made = append(q.made, made{span: span{v.asked, forever}, n: c.N})
			})
		}
	case len(got.Checks) != len(op.Checks):
		w.t.Errorf("node %s: %d checks, %d answers", p.id, len(op.Checks), len(got.Checks))
	default:
		h.judgeHold(&op, &got, v, leases)
	}
}

// judgeHold records an answer, and checks that it is consistent.
func (h *holder) judgeHold(op *heldOp, got *heldAnswer, v verdict, leases []*lease) {
	w, refused := h.w, false
	for i := range got.Checks {
		refused = refused || !got.Checks[i].Allowed
	}
	counted := (got.Allowed || op.Charge || op.CountDenied) && !op.DryRun
	if refused == got.Allowed || (got.Hold != "") != (counted && op.Hold != "") {
		w.t.Errorf("node %s answers %+v to %+v", v.by, *got, *op)
		return
	}
	for i := range op.Checks {
		c := &op.Checks[i]
		if v.n = c.N; counted {
			w.ledger.acknowledge(c.Key, c.N, true)
			w.holds.quota(c.Key, func(q *quota) {
				q.made = append(q.made, made{span{v.asked, v.told}, c.N, true})
			})
		}
		if _, limited := quotaOf(c.Key); limited && got.Allowed && !op.DryRun {
			w.ledger.admit(c.Key, v)
		}
		for _, l := range got.Checks[i].Limits {
			if l.Concurrent > 0 {
				w.holds.see(c.Key, sighting{v, l.Open, got.Allowed, got.Allowed && !op.DryRun})
			}
		}
	}
	if got.Hold == "" || !got.Allowed {
		w.holds.forget(leases)
	}
	if got.Hold != "" {
		w.holds.add(w, op, got.Hold, v, leases)
	}
}

// settle settles a hold with an amount for all of its keys, or for some. Those on calendar periods
// stay as they are.
func (h *holder) settle(p *proc, one *held) {
	request := map[string]any{"hold": one.id}
	n, some := h.rnd.Int64N(7), h.rnd.IntN(3) == 0
	var checks []map[string]any
	left := map[string]int64{} // of the number of each key that is settled
	for _, k := range one.keys {
		if _, drawn := left[k.key]; drawn {
			continue
		}
		if k.fixed || some && h.rnd.IntN(2) == 0 {
			some = true
			continue
		}
		left[k.key] = n
		checks = append(checks, map[string]any{"key": k.key, "n": n})
	}
	amounts := one.amounts(left)
	if request["n"] = n; some {
		if delete(request, "n"); len(checks) == 0 {
			return
		}
		request["checks"] = checks
	}
	defer h.w.enter(p)()
	end := h.w.holds.begin(h.w, one, amounts, false)
	var got struct{ Settled, Repeated bool }
	status, err := h.post(p, "/v1/settle", request, &got)
	end(p, fmt.Sprint("settled with ", amounts), err, status == http.StatusOK, got.Repeated)
}

// renew moves the end of a hold.
func (h *holder) renew(p *proc, one *held) {
	defer h.w.enter(p)()
	lasts := time.Second + h.upTo(15*time.Second)
	asked := time.Now()
	amounts := make([]int64, len(one.keys))
	for i, k := range one.keys {
		amounts[i] = k.n
	}
	end := h.w.holds.begin(h.w, one, amounts, true)
	leases := h.w.holds.expectAgain(one, asked, lasts)
	var got struct {
		Hold  string
		Until int64
	}
	status, err := h.post(p, "/v1/renew", map[string]any{"hold": one.id,
		"for": fmt.Sprintf("%dms", lasts.Milliseconds())}, &got)
	end(p, fmt.Sprint("renewed until ", got.Until), err, status == http.StatusOK, false)
	switch {
	case err != nil, status == http.StatusGone && len(one.keys) == 1:
		h.w.holds.forget(leases)
	case status == http.StatusOK:
		v := verdict{asked: asked, told: time.Now(), by: p.id, ip: p.ip}
		h.w.holds.renewed(h.w, one, got.Hold, lasts, v, leases)
	}
}

// read counts the events of a calendar period.
func (h *holder) read(p *proc, key string) {
	limit, _ := quotaOf(key)
	defer h.w.enter(p)()
	asked := time.Now()
	window := limit.Period.String()
	r, err := h.send(p, "GET", "/v1/count?key="+key+"&window="+url.QueryEscape(window), nil)
	var got struct {
		Counts   []struct{ Count, Min, Max int64 }
		Degraded bool
	}
	switch {
	case err != nil || p.dead.Load():
	case r.status != http.StatusOK:
		h.refused(p, r)
	case json.Unmarshal(r.text, &got) != nil || len(got.Counts) != 1:
		h.w.t.Errorf("node %s answers %s", p.id, r.text)
	case !got.Degraded:
		h.w.holds.quota(key, func(q *quota) {
			q.read = append(q.read, counting{span{asked, time.Now()}, p.id, got.Counts[0].Min,
				got.Counts[0].Max})
		})
	}
}
