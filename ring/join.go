package ring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// seedsApart is how long after one seed the next one is contacted: the first answer should be
	// enough, as all seeds exchange all state.
	seedsApart = 20 * time.Millisecond
	// seedPatience is how long a running seed may take to answer. Other members declare a stalled
	// seed dead sooner.
	seedPatience = 20 * time.Second
	// seedPause is the time between attempts to reach such a seed.
	seedPause = 250 * time.Millisecond
)

// join contacts the seeds until it reaches one that is a member or knows one. Seeds that are
// starting as well may not have met anyone yet: a node that trusted their view alone could miss a
// process with its own ID. Seeds that run but don't answer are asked again for a while: they stand
// still, or are about to end.
func (r *Ring) join(ctx context.Context, seeds []string) error {
	patient, cancel := context.WithTimeout(ctx, seedPatience)
	defer cancel()
	c := contacts{failed: map[string]contact{}}
	unheard := slices.DeleteFunc(slices.Clone(seeds), r.isSelf)
	for len(unheard) > 0 && patient.Err() == nil {
		rand.Shuffle(len(unheard), func(i, j int) {
			unheard[i], unheard[j] = unheard[j], unheard[i]
		})
		if r.contactSeeds(patient, unheard, &c) {
			return nil
		}
		if unheard = c.seedsToRetry(); len(unheard) > 0 {
			select {
			case <-time.After(seedPause):
			case <-patient.Done():
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	return r.concludeJoin(&c, seeds)
}

// Contact exchanges state with the nodes at these gossip addresses, once, after Open and before
// Enter. It stops early if one of them knows a member that is past starting. The error wraps
// [ErrRefused] if none can be reached and one of them is configured differently; it is no error if
// they don't answer, or don't let this node in.
func (r *Ring) Contact(ctx context.Context, addresses []string) error {
	c := contacts{failed: map[string]contact{}}
	r.contactSeeds(ctx, addresses, &c)
	r.rebuild()
	for _, failed := range c.failed {
		if !c.reached && failed.outcome == refused {
			return fmt.Errorf("join: %w: %s", ErrRefused, failed.reason)
		}
	}
	return nil
}

// HasMember reports whether the process with this name is a member.
func (r *Ring) HasMember(name string) bool {
	r.views.mu.Lock()
	defer r.views.mu.Unlock()
	_, ok := r.views.members[name]
	return ok
}

// HasEntered reports whether another member is past starting.
func (r *Ring) HasEntered() bool { return r.views.hasEntered(r.opt.Name) }

// contactSeeds exchanges state with seeds until one of them knows a member that is past starting,
// and reports whether one did.
func (r *Ring) contactSeeds(ctx context.Context, seeds []string, c *contacts) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := each(ctx, seeds, seedsApart, func(seed string) error {
		return &contactError{seed, r.exchange(seed)}
	})
	for range seeds {
		select {
		case err := <-results:
			if c.record(err) && r.views.hasEntered(r.opt.Name) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// concludeJoin decides how a start goes on after the last contacts with the seeds, none of which
// knows a member that is past starting.
func (r *Ring) concludeJoin(c *contacts, seeds []string) error {
	worst := contact{}
	for _, now := range c.failed {
		if now.outcome > worst.outcome {
			worst = now
		}
	}
	switch {
	case c.reached, worst.outcome == reached:
		return nil
	case worst.outcome == refused:
		return fmt.Errorf("join: %w: %s", ErrRefused, worst.reason)
	case worst.outcome >= hungUp:
		return fmt.Errorf("join: %w: %s answered but did not let this node in (is the cluster "+
			"secret the same?)", ErrNotJoined, strings.Join(seeds, ", "))
	case worst.outcome == silent:
		r.opt.Logger.Warn("members to join are there but don't answer: continuing alone and "+
			"asking them again", "join", strings.Join(seeds, ","))
	default:
		r.opt.Logger.Warn("no other member is up yet: continuing alone and looking for them",
			"join", strings.Join(seeds, ","))
	}
	return nil
}

// isSelf reports whether a seed is this node itself, as happens when all nodes share one list.
func (r *Ring) isSelf(seed string) bool { return seed == r.opt.Bind || seed == r.Gossip() }

// contactOutcome is the outcome of contacting a seed. Later ones are worse.
type contactOutcome int

const (
	reached    contactOutcome = iota
	absent                    // nothing is there
	silent                    // something is there that has not answered in time
	hungUp                    // it has closed the connection, like a process that ends
	turnedAway                // it does not talk to this node, as happens with different secrets
	refused                   // this node finds it configured differently
)

// contact is the outcome of contacting a seed, and the reason if it was refused.
type contact struct {
	outcome contactOutcome
	reason  string
}

// contacts are the outcomes of contacting the seeds.
type contacts struct {
	reached bool               // one of them
	failed  map[string]contact // the others, by seed
}

// contactError is the result of contacting a seed; err is nil if it was reached.
type contactError struct {
	seed string
	err  error
}

func (e *contactError) Error() string { return fmt.Sprintf("seed %s: %v", e.seed, e.err) }

// record records the result of contacting a seed. It reports whether the seed was reached.
func (c *contacts) record(result error) bool {
	e, ok := errors.AsType[*contactError](result)
	switch {
	case !ok: // its turn did not come
		return false
	case e.err != nil:
		c.failed[e.seed] = parseContact(e.err)
		return false
	}
	delete(c.failed, e.seed)
	c.reached = true
	return true
}

func (c *contacts) seedsToRetry() (seeds []string) {
	for seed, now := range c.failed {
		if now.outcome == silent || now.outcome == hungUp {
			seeds = append(seeds, seed)
		}
	}
	return seeds
}

// parseContact interprets the error of an exchange. A seed may have several addresses, with a line
// for each. memberlist only passes on the text of an error, of either side.
func parseContact(err error) (c contact) {
	c.outcome = absent
	for line := range strings.Lines(err.Error()) {
		_, failed, ok := strings.Cut(strings.TrimSpace(line), "failed to join ")
		if !ok || strings.Contains(failed, "dial ") {
			continue
		}
		now, reason := parseOutcome(failed)
		if now > c.outcome {
			c = contact{now, reason}
		}
	}
	return c
}

// parseOutcome interprets the text of an error that follows the address of a seed.
func parseOutcome(text string) (o contactOutcome, reason string) {
	_, text, _ = strings.Cut(text, ": ")
	ends := func(err error) bool { return strings.HasSuffix(text, err.Error()) }
	if reason, ok := strings.CutPrefix(text, ErrRefused.Error()+": "); ok {
		return refused, reason
	}
	switch {
	case ends(os.ErrDeadlineExceeded):
		return silent, ""
	case ends(io.EOF), ends(io.ErrClosedPipe), ends(syscall.ECONNRESET), ends(syscall.EPIPE):
		return hungUp, ""
	}
	return turnedAway, ""
}
