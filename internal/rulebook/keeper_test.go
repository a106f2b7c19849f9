package rulebook_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/rulebook"
	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/testing/must"
)

// store is a store that can be out of reach, lose its versions, or leave appends unanswered.
type store struct {
	mu     sync.Mutex
	memory *rulebook.Memory
	err    error // of every call
	silent bool  // appends are done, but not answered
}

func newStore() *store { return &store{memory: new(rulebook.Memory)} }

func (s *store) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// lose makes the store drop all versions.
func (s *store) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = new(rulebook.Memory)
}

func (s *store) reach() (*rulebook.Memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory, s.err
}

func (s *store) Newest(ctx context.Context) (int64, string, error) {
	m, err := s.reach()
	if err != nil {
		return 0, "", err
	}
	return m.Newest(ctx)
}

func (s *store) Version(ctx context.Context, n int64) (twotier.RuleVersion, error) {
	m, err := s.reach()
	if err != nil {
		return twotier.RuleVersion{}, err
	}
	return m.Version(ctx, n)
}

func (s *store) History(ctx context.Context) ([]twotier.RuleVersion, error) {
	m, err := s.reach()
	if err != nil {
		return nil, err
	}
	return m.History(ctx)
}

func (s *store) Append(ctx context.Context, v twotier.RuleVersion) error {
	m, err := s.reach()
	if err != nil {
		return err
	}
	err = m.Append(ctx, v)
	if s.silent && err == nil {
		err = errors.New("no answer")
	}
	return err
}

// Restore restores into an empty memory, which must have all versions up to the one restored.
func (s *store) Restore(ctx context.Context, v twotier.RuleVersion) error {
	m, err := s.reach()
	if err != nil {
		return err
	}
	for n, _, _ := m.Newest(ctx); n < v.Number; n++ {
		filler := twotier.RuleVersion{Number: n + 1, ID: "filler"}
		if n+1 == v.Number {
			filler = v
		}
		if err := m.Append(ctx, filler); err != nil {
			return err
		}
	}
	return nil
}

// node is a keeper with its book and its log.
type node struct {
	*rulebook.Keeper
	book rules.Book
	log  bytes.Buffer
}

func newNode(s rulebook.Store) *node {
	n := new(node)
	n.Keeper = rulebook.New(rulebook.Options{Store: s, Book: &n.book, Timeout: time.Second,
		Logger: slog.New(slog.NewTextHandler(&n.log, nil)),
		Check: func(d *rules.Document) error {
			if d.Rules.Find([]byte("forbidden")) != nil {
				return errors.New("forbidden")
			}
			return nil
		}})
	return n
}

// open returns an open node, which the end of the test closes.
func open(t *testing.T, s rulebook.Store) *node {
	n := newNode(s)
	n.Open(t.Context())
	t.Cleanup(n.Close)
	return n
}

// put makes a document with one rule the successor of a version.
func (n *node) put(t *testing.T, base int64, name string) {
	t.Helper()
	_, err := n.Put(t.Context(), base, text(name), "me")
	must.Succeed(t, err)
}

// has fails the test unless a rule of that name is in force, as a version of that number.
func (n *node) has(t *testing.T, name string, number int64) {
	t.Helper()
	set := n.book.Rules()
	if set == nil {
		t.Errorf("no rules are known, want %s of version %d", name, number)
		return
	}
	if v, _, _ := n.Current(); set.Version() != number || v.Number != number ||
		name != "" && set.Find([]byte(name)) == nil {
		t.Errorf("version %d with %v in force, want %d with %s", set.Version(), set.Names(), number,
			name)
	}
}

// text returns a document with one rule.
func text(name string) []byte { return []byte("rules: [{name: " + name + ", limits: [1/1m]}]") }

// poll lets every keeper ask its store.
func poll() { time.Sleep(time.Second); synctest.Wait() }

var errAway = errors.New("away")

func TestEveryNodeHasTheNewestVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := open(t, s), open(t, s)
		a.has(t, "", 0)
		b.has(t, "", 0)
		a.put(t, 0, "one")
		a.has(t, "one", 1) // immediately
		poll()
		b.has(t, "one", 1)
		s.set(errAway)
		poll()
		if _, err := b.Put(t.Context(), 1, text("two"), "me"); !errors.Is(err,
			twotier.ErrUnavailable) {
			t.Errorf("put while the store is away: %v", err)
		}
		b.has(t, "one", 1)
		s.set(nil)
		a.put(t, 1, "two")
		poll()
		b.has(t, "two", 2)
		open(t, s).has(t, "two", 2)
		if n := strings.Count(b.log.String(), "keeping those in force"); n != 1 ||
			!strings.Contains(b.log.String(), "can be read again") {
			t.Errorf("log:\n%s", &b.log)
		}
	})
}

func TestOneOfTwoThatPutAtOnceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := open(t, s), open(t, s)
		errs := make(chan error, 2)
		go func() { _, err := a.Put(t.Context(), 0, text("one"), "me"); errs <- err }()
		go func() { _, err := b.Put(t.Context(), 0, text("two"), "me"); errs <- err }()
		one, two := <-errs, <-errs
		if (one == nil) == (two == nil) || !errors.Is(errors.Join(one, two),
			twotier.ErrRulesMoved) {
			t.Errorf("%v and %v", one, two)
		}
		if v, err := a.Put(t.Context(), rulebook.AnyVersion, text("three"), "me"); err != nil ||
			v.Number != 2 {
			t.Errorf("%v, %v", v, err)
		}
	})
}

func TestPutWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		n := open(t, s)
		s.silent = true
		if _, err := n.Put(t.Context(), 0, text("one"), "me"); !errors.Is(err,
			twotier.ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
		s.silent = false
		if v, err := n.Put(t.Context(), 0, text("one"), "me"); err != nil || v.Number != 1 {
			t.Errorf("again: %v, %v", v, err)
		}
	})
}

func TestBadDocumentsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		n := open(t, s)
		n.put(t, 0, "one")
		for _, bad := range []string{"", "# rules:\n", "---\n", "[]", "rules: [", "rule: []",
			string(text("forbidden")), "# " + strings.Repeat("x", twotier.MaxRuleText)} {
			_, err := n.Put(t.Context(), 1, []byte(bad), "me")
			if _, ok := errors.AsType[*twotier.DocumentError](err); !ok {
				t.Errorf("%.40s: %v", bad, err)
			}
		}
		n.has(t, "one", 1)
		// Another node, with newer code, has stored a version that this one can't use.
		must.Succeed(t, s.memory.Append(t.Context(), twotier.RuleVersion{Number: 2, ID: "x",
			Text: text("forbidden")}))
		poll()
		n.has(t, "one", 1)
		if c := strings.Count(n.log.String(), "version 2 can't be used by this node"); c != 1 {
			t.Errorf("logged %d times:\n%s", c, &n.log)
		}
	})
}

func TestWhatTheStoreLosesIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		a, b := open(t, s), open(t, s)
		for i, name := range []string{"one", "two", "three"} {
			a.put(t, int64(i), name)
		}
		poll()
		s.lose()
		poll()
		for _, n := range []*node{a, b} {
			n.has(t, "three", 3)
		}
		s.lose()
		if v, err := b.Put(t.Context(), 3, text("four"), "me"); err != nil || v.Number != 4 {
			t.Errorf("put at once: %v, %v", v, err)
		}
		poll()
		a.has(t, "four", 4)
		// The store has lost version 4, and a node unaware of it made another version 4.
		s.lose()
		for n := int64(1); n <= 4; n++ {
			must.Succeed(t, s.memory.Append(t.Context(), twotier.RuleVersion{Number: n, ID: "other",
				Text: text("other")}))
		}
		poll()
		a.has(t, "other", 4)
	})
}

// offer offers a valid file.
func (n *node) offer(t *testing.T, name string, changed bool) {
	t.Helper()
	must.Succeed(t, n.Offer(text(name), "file", changed))
}

// TestNodesWithOneFile starts nodes with the same file. One stores it; a node that starts later
// does not undo a put since then; and a file that changes becomes a version once.
func TestNodesWithOneFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var nodes []*node
		start := func(name string) *node {
			n := newNode(s)
			n.offer(t, name, false)
			n.Open(t.Context())
			t.Cleanup(n.Close)
			nodes = append(nodes, n)
			return n
		}
		start("one").has(t, "one", 1)
		start("one").has(t, "one", 1)
		nodes[0].put(t, 1, "urgent")
		start("one").has(t, "urgent", 2)
		for _, n := range nodes {
			n.offer(t, "two", true)
		}
		poll()
		for _, n := range nodes {
			n.has(t, "two", 3)
		}
		nodes[1].offer(t, "one", true) // back to a text that has been a version
		poll()
		nodes[0].has(t, "one", 4)
		start("new").has(t, "new", 5)
	})
}

// TestFileWithoutTheStore starts a node that can't reach its store: the file is in force until it
// can.
func TestFileWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.set(errAway)
		blank, n := newNode(s), newNode(s)
		n.offer(t, "one", false)
		for _, each := range []*node{blank, n} {
			each.Open(t.Context())
			defer each.Close()
		}
		n.has(t, "one", 0)
		if _, _, known := blank.Current(); known || blank.book.Rules() != nil {
			t.Error("a node knows rules that it can't have read")
		}
		n.offer(t, "two", true)
		poll()
		n.has(t, "one", 0)
		s.set(nil)
		poll()
		n.has(t, "two", 1)
		poll()
		blank.has(t, "two", 1)
		err := n.Offer([]byte("rules: ["), "file", true)
		if _, ok := errors.AsType[*twotier.DocumentError](err); !ok {
			t.Errorf("a bad file: %v", err)
		}
		poll()
		n.has(t, "two", 1)
	})
}
