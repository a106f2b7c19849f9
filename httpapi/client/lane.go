package client

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fastjson"

	"twotier.dev/twotier/internal/batching"
)

// A server accepts a mebibyte. maxBody is the length at which a request or a call takes no further
// operations. maxOp is the length of the longest operation that a server accepts, with some room to
// spare.
const (
	maxBody = 384 << 10
	maxOp   = 192 << 10
)

// keptAnswer is the longest answer whose parser is kept for the next one.
const keptAnswer = 256 << 10

// The pauses between attempts to send a request.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

var (
	// errAnew: a request was refused because of its session, and certainly did nothing. It may be
	// sent in a new session.
	errAnew = errors.New("the session is over")
	// errProcess: the outcome is known only to a process that is gone, or has forgotten the
	// session.
	errProcess = errors.New("the node was restarted, or has forgotten the session")
)

// lane sends one request at a time to a node. It is a session, as the server documents it.
type lane struct {
	l       *link
	w       *nodeConn
	session string // empty until the session has begun
	process string // the session's process; empty if the server knows no sessions
	seq     int64
	batch   []*call // being sent; nil for calls that were given back
	ops     []int   // the number of operations of each call of batch
	usual   int     // checks of all calls that default rules judge
	body    []byte
	parser  fastjson.Parser // for answers
}

func newLane(l *link) *lane {
	n := &lane{l: l, w: newNodeConn(l.address, &l.c.opt)}
	n.w.request.Header.SetMethod("POST")
	n.w.request.Header.SetContentType("application/json")
	n.w.request.SetRequestURI("/v1/batch")
	return n
}

// run sends waiting calls until the link ends.
func (n *lane) run(queue *batching.Queue[*call]) {
	defer n.w.close()
	queue.Run(nil, n.sendAll)
}

// sendAll sends a batch, in requests of the size that the node accepts.
func (n *lane) sendAll(batch []*call) {
	for len(batch) > 0 {
		fits, bytes := 1, len(batch[0].body)
		for fits < len(batch) && bytes+len(batch[fits].body) <= n.l.fit.maxBytes() {
			bytes += len(batch[fits].body)
			fits++
		}
		n.send(batch[:fits], bytes)
		batch = batch[fits:]
	}
}

// send sends a batch of so many bytes as one request and gives each call its part of the answer. If
// the request is too large for the node, send sends its halves: its memory on the node depends on
// the rules, and on the other requests that the node reads for this address.
func (n *lane) send(batch []*call, bytes int) {
	n.batch, n.ops, n.usual = batch, n.ops[:0], 0
	var by time.Time
	n.body = append(n.body[:0], `{"ops":[`...)
	for i, k := range n.batch {
		if i > 0 {
			n.body = append(n.body, ',')
		}
		n.ops = append(n.ops, k.ops)
		n.usual += k.usual
		n.body = append(n.body, k.body...)
		if k.by.After(by) {
			by = k.by
		}
	}
	n.body = append(n.body, "]}"...)
	err := n.exchange(by)
	switch {
	case err == nil:
		n.l.fit.grow(bytes)
	case errors.Is(err, ErrOverloaded): // smaller requests find memory sooner
		n.l.fit.shrink(bytes)
	case isTooLarge(err):
		n.l.fit.shrink(bytes)
		batch = slices.DeleteFunc(batch, func(k *call) bool { return k == nil })
		if len(batch) > 1 {
			n.sendAll(batch[:len(batch)/2])
			n.sendAll(batch[len(batch)/2:])
			return
		}
	}
	var results []*fastjson.Value
	if err == nil {
		results, err = n.results()
	}
	for i, k := range n.batch {
		switch {
		case k == nil: // given back already, but answered nevertheless
			results = results[min(n.ops[i], len(results)):]
		case err != nil && !k.write && (!k.adds || errors.Is(err, ErrUnknownOutcome)):
			k.Finish(fmt.Errorf("%w: %w", errNotDone, err))
		case err != nil:
			k.Finish(err)
		default:
			k.Finish(k.takeResults(&results))
		}
	}
	if cap(n.body) > 2*maxBody {
		n.body = nil
	}
	if len(n.w.answer.Body()) > keptAnswer {
		n.parser = fastjson.Parser{}
	}
}

// results returns the results in the answer to a batch. They are valid until the next answer is
// parsed.
func (n *lane) results() ([]*fastjson.Value, error) {
	if hasMoreValues(n.w.answer.Body(), maxValues(n.body, n.usual)) {
		return nil, unknownOutcomeError(true, errAnswer)
	}
	v, err := n.parser.ParseBytes(n.w.answer.Body())
	if err != nil {
		return nil, unknownOutcomeError(true, errAnswer)
	}
	return v.GetArray("results"), nil
}

// maxValues is an upper bound for the number of values in the answer to a batch in which default
// rules judge usual checks. A window has the most values for its length: it takes five bytes to
// request, and is answered with six values. Rules have more, as they are short names for limits;
// default rules and rules on distinct values judge without being named.
func maxValues(request []byte, usual int) int {
	rules := bytes.Count(request, []byte(`"rules":[`)) + usual
	return 4<<10 + 4*len(request) + rules*maxRuleValues +
		bytes.Count(request, []byte(`"values":[`))*maxDistinctValues
}

// maxRuleValues bounds the values in an answer for the rules of one check: 16 rules, each with 16
// limits of 9 values and a name in "refused_by", and with a ban of 5 values.
const maxRuleValues = 16 * (16*10 + 5)

// maxDistinctValues bounds the values in an answer for the rules that judge different values: 64
// limits of 8 values and a name in "refused_by".
const maxDistinctValues = 64*9 + 16

// exchange executes the batch once. If the error is errNotDone, it was certainly not executed.
func (n *lane) exchange(by time.Time) error {
	// Three times: the server may have forgotten the session, and may be restarting just then.
	for range 3 {
		if n.session == "" {
			if err := n.beginSession(by); err != nil {
				return err
			}
		}
		n.seq++
		err := n.postUntilFinal(n.body, by)
		if !errors.Is(err, errAnew) {
			return err
		}
	}
	return errNotDone
}

// beginSession begins a session with an empty batch. The answer names the process of the node. Only
// the first number of a session could be executed again if the server forgot the session, and an
// empty batch counts nothing.
func (n *lane) beginSession(by time.Time) error {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	n.session, n.process, n.seq = hex.EncodeToString(id[:]), "", 1
	n.w.request.Header.Set(headerSession, n.session)
	n.w.request.Header.Del(headerProcess)
	empty := []byte(`{"ops":[]}`)
	err := n.postOnce(empty, by)
	if err != nil && !errors.Is(err, errDial) && !isTimeout(err) {
		err = n.postOnce(empty, by)
	}
	if err == nil && n.w.answer.StatusCode() != 200 {
		err = readProblem(n.w.answer.StatusCode(), n.w.answer.Body())
	}
	if err != nil {
		n.session = ""
		n.l.recordFailure(err)
		return fmt.Errorf("%w: %w", errNotDone, err)
	}
	n.process = string(n.w.answer.Header.Peek(headerProcess))
	if n.process != "" {
		n.w.request.Header.Set(headerProcess, n.process)
	}
	n.l.recordSuccess()
	return nil
}

// postOnce sends a body under the current number once and waits for an answer of any status.
func (n *lane) postOnce(body []byte, by time.Time) error {
	if until := time.Now().Add(n.l.c.opt.AttemptTimeout); until.Before(by) {
		by = until
	}
	n.w.request.Header.Set(headerSequence, strconv.FormatInt(n.seq, 10))
	n.w.request.Header.Set(headerTimeout, strconv.FormatInt(time.Until(by).Milliseconds(), 10))
	n.w.request.SetBodyRaw(body)
	n.l.contact.recordRequest(time.Now())
	err := n.w.send(n.l.c.cut, by)
	n.l.contact.recordOutcome(&n.w.answer, err)
	return err
}

// postUntilFinal sends a body under the same number until it gets a final answer or time is up.
// errAnew means that the request was certainly not executed, and can be sent in a new session.
func (n *lane) postUntilFinal(body []byte, by time.Time) error {
	n.l.c.stats.requests.Add(1)
	failures := 0 // attempts that may have been executed
	pause := time.Duration(0)
	for {
		err := n.postOnce(body, by)
		if err == nil {
			var final bool
			if final, err = n.interpretAnswer(failures > 0); final {
				return err
			}
		} else if failures == 0 && errors.Is(err, errDial) {
			n.l.recordFailure(err)
			return fmt.Errorf("%w: %w", errNotDone, err)
		}
		// The first failure may be a connection that was closed while idle.
		if failures++; failures > 1 || isTimeout(err) {
			n.l.recordFailure(err)
			if n.returnReads() == 0 {
				return errNotDone
			}
		}
		if n.process == "" || !n.pause(&pause, by) {
			return unknownOutcomeError(true, fmt.Errorf("%w: %w", errTimeout, err))
		}
		n.l.c.stats.repeated.Add(1)
	}
}

// pause waits before another attempt, but not before the second. It reports false if there is no
// time left for one.
func (n *lane) pause(pause *time.Duration, by time.Time) bool {
	if *pause > 0 {
		timer := time.NewTimer(*pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-n.l.c.cut.Done():
		}
	}
	*pause = min(max(2**pause, firstPause), lastPause)
	return time.Now().Before(by) && n.l.c.cut.Err() == nil
}

// interpretAnswer interprets an answer. An answer that is not about the request is not final.
func (n *lane) interpretAnswer(repeated bool) (final bool, err error) {
	status := n.w.answer.StatusCode()
	if status == 200 {
		n.l.recordSuccess()
		return true, nil
	}
	p := readProblem(status, n.w.answer.Body())
	about := n.process == "" || len(n.w.answer.Header.Peek(headerProcess)) > 0
	gone := about && (status == 409 || status == 421)
	if gone {
		n.session = ""
	}
	switch {
	case gone && repeated:
		return true, unknownOutcomeError(true, errProcess)
	case gone:
		return true, errAnew
	case !about && (repeated || errors.Is(p, ErrUnknownOutcome) ||
		status >= 500 && !p.isFromTwotier()):
		return false, p
	case status >= 500 && !p.isFromTwotier(): // there is no process to repeat it to
		return true, unknownOutcomeError(true, p)
	case errors.Is(p, ErrUnavailable):
		return true, fmt.Errorf("%w: %w", errNotDone, p)
	}
	return true, p
}

// returnReads gives up calls that count nothing, so that they can be sent to another node while
// this lane learns the outcome of the others. It returns the number of the others.
func (n *lane) returnReads() (writes int) {
	for i, k := range n.batch {
		switch {
		case k == nil:
		case k.write:
			writes++
		default:
			n.batch[i] = nil
			k.Finish(errNotDone)
		}
	}
	return writes
}

// isTimeout reports whether an attempt failed for lack of an answer in time. fasthttp's error is no
// net.Error.
func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

// sizeLimit is the number of bytes of operations that a node accepts in a request. It begins with a
// server's maximum, shrinks when the node finds a request too large, and grows again slowly.
type sizeLimit struct{ less atomic.Int64 }

// leastFit is the number of bytes that a request may always have.
const leastFit = 8 << 10

// maxBytes returns the number of bytes.
func (f *sizeLimit) maxBytes() int { return maxBody - int(f.less.Load()) }

// shrink records that a request of so many bytes was too large.
func (f *sizeLimit) shrink(bytes int) {
	f.less.Store(int64(maxBody - min(max(bytes/2, leastFit), maxBody)))
}

// grow records that a request of so many bytes was accepted. Only a nearly full one is evidence
// that more would fit.
func (f *sizeLimit) grow(bytes int) {
	less := f.less.Load()
	if most := maxBody - less; less > 0 && int64(bytes) > most*3/4 {
		f.less.CompareAndSwap(less, max(0, less-most/16))
	}
}

// isTooLarge reports whether a node has found a request too large, and done nothing.
func isTooLarge(err error) bool {
	p, ok := errors.AsType[*Problem](err)
	return ok && p.Status == http.StatusRequestEntityTooLarge && p.isFromTwotier()
}
