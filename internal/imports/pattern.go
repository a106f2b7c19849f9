package imports

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The placeholders with a meaning: the time at which a window starts, and that time divided by the
// width of a window.
const (
	placeStart = "start"
	placeIndex = "index"
	placeKey   = "key"
	// placeNumber is the number of events, in a pattern of members.
	placeNumber = "n"
)

// Pattern is a text with placeholders, such as limit:{key}:zset. Two braces stand for one.
type Pattern struct {
	text  string
	names []string // of the placeholders, in order
	parts []string // the texts around them: one more than names
	match *regexp.Regexp
}

// ParsePattern parses a pattern.
func ParsePattern(text string) (*Pattern, error) {
	p := &Pattern{text: text}
	var part strings.Builder
	for rest := text; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			part.WriteByte(rest[0])
			rest = rest[2:]
		case rest[0] == '{':
			name, after, ok := strings.Cut(rest[1:], "}")
			if !ok || !placeName.MatchString(name) {
				return nil, fmt.Errorf("%q: want a name in braces, such as {key}; two braces "+
					"stand for one", text)
			}
			if slices.Contains(p.names, name) {
				return nil, fmt.Errorf("%q: {%s} is there twice", text, name)
			}
			p.names, p.parts = append(p.names, name), append(p.parts, part.String())
			part.Reset()
			rest = after
		case rest[0] == '}':
			return nil, fmt.Errorf("%q: } without {; two braces stand for one", text)
		default:
			part.WriteByte(rest[0])
			rest = rest[1:]
		}
	}
	p.parts = append(p.parts, part.String())
	p.compile()
	return p, nil
}

var placeName = regexp.MustCompile(`^[a-z_]+$`)

// compile makes the expression that matches keys.
func (p *Pattern) compile() {
	var b strings.Builder
	b.WriteString(`(?s)^`)
	for i, part := range p.parts {
		b.WriteString(regexp.QuoteMeta(part))
		switch {
		case i == len(p.names):
		case p.names[i] == placeStart || p.names[i] == placeIndex:
			b.WriteString(`([0-9]+)`)
		default:
			b.WriteString(`(.+)`)
		}
	}
	p.match = regexp.MustCompile(b.String() + `$`)
}

// Has reports whether the pattern has a placeholder of that name.
func (p *Pattern) Has(name string) bool { return slices.Contains(p.names, name) }

// hasTime reports whether keys hold the time of their window.
func (p *Pattern) hasTime() bool { return p.Has(placeStart) || p.Has(placeIndex) }

// glob returns the pattern in the language of SCAN.
func (p *Pattern) glob() string {
	quote := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
	parts := make([]string, len(p.parts))
	for i, part := range p.parts {
		parts[i] = quote.Replace(part)
	}
	return strings.Join(parts, "*")
}

// values returns the values of the placeholders in a key, or false if the key does not match.
func (p *Pattern) values(key string) (map[string]string, bool) {
	found := p.match.FindStringSubmatch(key)
	if found == nil {
		return nil, false
	}
	values := make(map[string]string, len(p.names))
	for i, name := range p.names {
		values[name] = found[i+1]
	}
	return values, true
}

// expand returns the text with values in place of the placeholders.
func (p *Pattern) expand(values map[string]string) string {
	var b strings.Builder
	for i, name := range p.names {
		b.WriteString(p.parts[i])
		b.WriteString(values[name])
	}
	return b.String() + p.parts[len(p.names)]
}

// Merges returns the first placeholder, except for the time of a window, that another pattern does
// not use, or "": keys that differ only there become one.
func (p *Pattern) Merges(into *Pattern) string {
	for _, name := range p.names {
		if name != placeStart && name != placeIndex && !into.Has(name) {
			return name
		}
	}
	return ""
}

// Unknown returns the first placeholder that another pattern lacks, or "".
func (p *Pattern) Unknown(in *Pattern) string {
	for _, name := range p.names {
		if !in.Has(name) {
			return name
		}
	}
	return ""
}
