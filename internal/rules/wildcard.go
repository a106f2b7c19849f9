package rules

import "strings"

// wildcard is a descriptor with stars, each of which stands for any text, in its key or its value.
type wildcard struct {
	key   string   // "" if the key has a star
	parts []string // the text around the stars: of the value or, if the key has a star, of both
	to    *descriptor
}

// newWildcard returns the wildcard of a descriptor whose entry has a star.
func newWildcard(e Entry, to *descriptor) wildcard {
	if !strings.Contains(e.Key, "*") {
		return wildcard{e.Key, strings.Split(e.Value, "*"), to}
	}
	text := e.Key
	if e.Value != "" {
		text = joinEntry(e)
	}
	return wildcard{"", strings.Split(text, "*"), to}
}

// joinEntry returns an entry as envoyproxy/ratelimit compares it with stars, such as tenant_7_read
// of the key tenant_7. So the key tenant_* without a value matches every value, too.
func joinEntry(e Entry) string { return e.Key + "_" + e.Value }

// matches reports whether the wildcard matches an entry of a request.
func (w *wildcard) matches(e Entry) bool {
	if w.key == "" {
		return matchesParts(w.parts, joinEntry(e))
	}
	return w.key == e.Key && matchesParts(w.parts, e.Value)
}

// matchesParts reports whether a text consists of two or more parts, in their order, with any text
// between them.
func matchesParts(parts []string, text string) bool {
	last := len(parts) - 1
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1:last] {
		_, rest, ok = strings.Cut(rest, part)
		if !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[last])
}

// hasStar reports whether an entry of a document has a star.
func (e Entry) hasStar() bool {
	return strings.Contains(e.Key, "*") || strings.Contains(e.Value, "*")
}

// HasDeadStar reports whether the descriptor has a star that probably matches nothing: without a
// value, the text behind the last star of a key is compared with the end of a request's value.
func (d *PlacedDescriptor) HasDeadStar() bool {
	return d.Value == "" && strings.Contains(d.Key, "*") && !strings.HasSuffix(d.Key, "*")
}
