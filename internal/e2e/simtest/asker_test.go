package simtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"twotier.dev/twotier/internal/testing/simnet"
)

// asker is a client of the HTTP API on a separate host. It names rules, changes them, and lifts
// bans.
type asker struct {
	w    *world
	host *simnet.Host
	rnd  *rand.Rand
}

// askers is the number of askers.
const askers = 2

const adminToken = "the token of this schedule"

func (w *world) newAsker(i int) *asker {
	return &asker{w, w.net.Start(fmt.Sprint("10.0.2.", i)),
		rand.New(rand.NewPCG(w.seed, uint64(200+i)))}
}

func (a *asker) run(stop <-chan struct{}) {
	defer a.host.Stop()
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(a.rnd.Int64N(int64(4 * a.w.plan.pause)))):
		}
		if p := a.w.pick(a.rnd); p != nil {
			a.act(p)
		}
	}
}

func (a *asker) act(p *proc) {
	switch n := a.rnd.IntN(100); {
	case n < 4:
		a.put(p)
	case n < 8:
		a.lift(p)
	case n < 20:
		ops := make([]ruledOp, 2+a.rnd.IntN(6))
		for i := range ops {
			ops[i] = a.draw()
		}
		a.ask(p, ops...)
	default:
		a.ask(p, a.draw())
	}
}

// ruledOp is an acquire in which the rules of all checks have names.
type ruledOp struct {
	Op          string       `json:"op,omitempty"`
	Checks      []ruledCheck `json:"checks"`
	CountDenied bool         `json:"count_denied,omitempty"`
	Charge      bool         `json:"charge,omitempty"`
	DryRun      bool         `json:"dry_run,omitempty"`
	Ack         string       `json:"ack,omitempty"`
}

type ruledCheck struct {
	Key   string   `json:"key"`
	N     int64    `json:"n"`
	Rules []string `json:"rules,omitempty"`
}

// names returns the rules that judge the check.
func (c *ruledCheck) names() []string {
	if len(c.Rules) == 0 {
		return []string{relaxed} // by default
	}
	return c.Rules
}

// draw returns an acquire of one or two keys, by one or two rules.
func (a *asker) draw() (op ruledOp) {
	if a.rnd.IntN(5) == 0 {
		op.Ack = "redis"
	}
	op.CountDenied, op.DryRun = a.rnd.IntN(12) == 0, a.rnd.IntN(15) == 0
	op.Charge = a.rnd.IntN(12) == 0
	first := a.rnd.IntN(ruledKeys)
	for i := range 1 + a.rnd.IntN(3)/2 {
		c := ruledCheck{Key: fmt.Sprint("ruled", (first+i)%ruledKeys), N: 1 + a.rnd.Int64N(2)}
		c.Rules = [][]string{{strict}, {strict}, {strict, relaxed}, {relaxed, strict},
			{relaxed}, nil}[a.rnd.IntN(6)]
		op.Checks = append(op.Checks, c)
	}
	return op
}

// reply is the answer to a client. A status of 0 means that there was none, and the request may
// have been executed.
type reply struct {
	status int
	text   []byte
	etag   string
}

var errNotSent = errors.New("not sent")

// send sends a request to a process, on a new connection.
func (a *asker) send(p *proc, method, path string, body []byte, headers ...string) (r reply,
	err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	c, err := a.host.Dial(ctx, p.ip)
	if err != nil {
		return r, errNotSent
	}
	defer func() { _ = c.Close() }()
	by, _ := ctx.Deadline()
	if err := c.SetDeadline(by); err != nil {
		return r, err
	}
	headers = append(headers, "Host: node", "Connection: close", "Authorization: Bearer "+
		adminToken, fmt.Sprint("Content-Length: ", len(body)))
	head := method + " " + path + " HTTP/1.1\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n"
	if _, err := c.Write(append([]byte(head), body...)); err != nil {
		return r, err
	}
	got, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return r, err
	}
	defer func() { _ = got.Body.Close() }()
	if r.text, err = io.ReadAll(got.Body); err != nil {
		return r, err
	}
	r.status, r.etag = got.StatusCode, got.Header.Get("ETag")
	return r, nil
}

const asJSON = "Content-Type: application/json"

// ask sends acquires to a process, and records the answers.
func (a *asker) ask(p *proc, ops ...ruledOp) {
	for i := range ops {
		for _, c := range ops[i].Checks {
			a.w.ledger.of(c.Key, func(*account) {}) // as in client.do
		}
	}
	path, request := "/v1/acquire", any(ops[0])
	if len(ops) > 1 {
		for i := range ops {
			ops[i].Op = "acquire"
		}
		path, request = "/v1/batch", map[string]any{"ops": ops}
	}
	body, err := json.Marshal(request)
	if err != nil {
		a.w.t.Error(err)
		return
	}
	defer a.w.enter(p)()
	asked := question{p: p, at: time.Now(), least: a.w.leastVersion(p)}
	r, err := a.send(p, "POST", path, body, asJSON)
	switch {
	case errors.Is(err, errNotSent):
		return
	case err != nil || p.dead.Load() || strings.Contains(string(r.text), `"outcome":"unknown"`) &&
		len(ops) == 1:
		for i := range ops {
			a.w.inDoubt(&asked, &ops[i])
		}
		return
	case r.status != http.StatusOK:
		for i := range ops {
			a.w.failed(&asked, &ops[i])
		}
		a.refused(p, r)
		return
	}
	asked.told = time.Now()
	a.read(&asked, ops, r.text)
}

// refused checks that a node may refuse a request with this answer.
func (a *asker) refused(p *proc, r reply) {
	a.w.refused.Add(1)
	may := []int{http.StatusServiceUnavailable, http.StatusPreconditionFailed}
	if a.w.plan.lag > 0 {
		may = append(may, http.StatusTooManyRequests)
	}
	if !slices.Contains(may, r.status) {
		a.w.t.Errorf("node %s says %d %s", p.id, r.status, r.text)
	}
}

// read reads the answers to some acquires.
func (a *asker) read(asked *question, ops []ruledOp, text []byte) {
	var batch struct{ Results []ruledAnswer }
	var err error
	if len(ops) > 1 {
		err = json.Unmarshal(text, &batch)
	} else {
		batch.Results = make([]ruledAnswer, 1)
		err = json.Unmarshal(text, &batch.Results[0])
	}
	if err != nil || len(batch.Results) != len(ops) {
		a.w.t.Errorf("node %s answers %s: %v", asked.p.id, text, err)
		return
	}
	version := int64(0)
	for i := range ops {
		switch got := &batch.Results[i]; {
		case got.Error != nil && got.Error.Outcome == "unknown":
			a.w.inDoubt(asked, &ops[i])
		case got.Error != nil:
			a.w.failed(asked, &ops[i])
			a.refused(asked.p, reply{status: got.Error.Status, text: text})
		default:
			if version != 0 && version != got.Version {
				a.w.t.Errorf("node %s mixes versions %d and %d in a batch", asked.p.id, version,
					got.Version)
			}
			version = got.Version
			a.w.judge(asked, &ops[i], got)
		}
	}
}

// put makes another document the successor of the version that a node has in force.
func (a *asker) put(p *proc) {
	base, _, known := p.rules.Current()
	if !known {
		return
	}
	d := a.w.rules.draw(a.rnd)
	r, err := a.send(p, "PUT", "/v1/rules", []byte(d.text()), "Content-Type: application/yaml",
		fmt.Sprintf("If-Match: %q", fmt.Sprint(base.Number)))
	number := a.w.rules.numberOf(d)
	a.w.say("version %d after %d at %s: %d %v", number, base.Number, p.id, r.status, err)
	switch {
	case err != nil || p.dead.Load():
	case r.status != http.StatusOK:
		a.refused(p, r)
	case r.etag != fmt.Sprintf("%q", fmt.Sprint(base.Number+1)) || number != base.Number+1:
		a.w.t.Errorf("node %s: a version after %d is %s, and stored as %d", p.id, base.Number,
			r.etag, number)
	default:
		p.hasVersion(number)
		a.w.rules.announce(number)
	}
}

// lift lifts a ban, if there is one.
func (a *asker) lift(p *proc) {
	b := ban{strict, fmt.Sprint("ruled", a.rnd.IntN(ruledKeys))}
	if a.rnd.IntN(3) == 0 {
		b.rule = relaxed
	}
	begun := time.Now()
	r, err := a.send(p, "POST", "/v1/unban",
		fmt.Appendf(nil, `{"rule":%q,"key":%q}`, b.rule, b.key), asJSON)
	a.w.say("the ban of %s by %s is lifted at %s: %d %s %v", b.key, b.rule, p.id, r.status, r.text,
		err)
	switch {
	case errors.Is(err, errNotSent):
	case err != nil, p.dead.Load(), strings.Contains(string(r.text), `"outcome":"unknown"`):
		a.w.bans.lift(b, span{begun, forever})
	case r.status == http.StatusOK:
		a.w.bans.lift(b, span{begun, time.Now()})
	default:
		a.refused(p, r)
	}
}
