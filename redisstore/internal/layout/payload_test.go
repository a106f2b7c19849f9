package layout_test

import (
	"strings"
	"testing"

	"twotier.dev/twotier/redisstore/internal/layout"
)

// TestPayloadsAreShort has no payload of pages that are too many or too long for the lengths in it.
func TestPayloadsAreShort(t *testing.T) {
	t.Parallel()
	var p layout.Payload
	for _, tc := range []struct {
		name, value int
		ok          bool
	}{{6, 10, true}, {6, 46, true}, {6, 47, false}, {6, 64, false}, {64, 1, false}} {
		p.Reset()
		p.Add([]byte(strings.Repeat("n", tc.name)), []byte(strings.Repeat("v", tc.value)))
		if text, ok := p.Text(); ok != tc.ok || ok && len(text) != 2+6+tc.name+tc.value+4+1+2+8 {
			t.Errorf("%+v: %q, %v", tc, text, ok)
		}
	}
	p.Reset()
	if _, ok := p.Text(); ok {
		t.Error("without pages there is a payload")
	}
}
