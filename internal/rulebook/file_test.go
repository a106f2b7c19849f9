package rulebook_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/testing/must"
)

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
			nodes = append(nodes, n)
			return n
		}
		defer func() {
			for _, n := range nodes {
				n.Close()
			}
		}()
		start("one").has(t, "one", 1)
		start("one").has(t, "one", 1)
		if _, err := nodes[0].Put(t.Context(), 1, text("urgent"), "me"); err != nil {
			t.Fatal(err)
		}
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
