package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"twotier/leaparray"
)

const (
	namespacePrefix = "namespace."
	ladderOption    = "ladder"
	onColdOption    = "on-cold"
	// defaultLadder covers one minute, one hour and a day.
	defaultLadder = "1s x 60, 1m x 60, 15m x 96"
)

// splitNamespace takes "namespace.NAME.OPTION" apart. NAME may have dots itself.
func splitNamespace(full string) (name, option string, err error) {
	rest := strings.TrimPrefix(full, namespacePrefix)
	dot := strings.LastIndexByte(rest, '.')
	if dot <= 0 {
		return "", "", fmt.Errorf("%s is not namespace.NAME.ladder or namespace.NAME.on-cold", full)
	}
	name, option = rest[:dot], rest[dot+1:]
	if option != ladderOption && option != onColdOption {
		return "", "", fmt.Errorf("unknown setting %q; a namespace has ladder and on-cold", full)
	}
	if err := checkName(name); err != nil {
		return "", "", fmt.Errorf("namespace %w", err)
	}
	return name, option, nil
}

// fillNamespaces sets c.Namespaces: the default one first, since the others take from it what they don't set.
func (c *Config) fillNamespaces(lines []line) error {
	var errs []error
	c.Namespaces = map[string]Namespace{}
	names := map[string]bool{}
	for _, l := range lines {
		name, _, _ := splitNamespace(l.name) // checked when it was read
		names[name] = true
		c.values[l.name] = l.value
	}
	delete(names, DefaultNamespace)
	base := value{text: defaultLadder, origin: FromDefault}
	ns, err := c.namespace(DefaultNamespace, base, c.values[onColdOption])
	errs = append(errs, err)
	c.Namespaces[DefaultNamespace] = ns
	ladder, onCold := c.values[namespaceKey(DefaultNamespace, ladderOption)], c.values[namespaceKey(DefaultNamespace, onColdOption)]
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if c.Namespaces[name], err = c.namespace(name, ladder, onCold); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// namespace returns the settings of one namespace, given what it takes for those that it doesn't set.
func (c *Config) namespace(name string, ladder, onCold value) (ns Namespace, err error) {
	var errs []error
	key := namespaceKey(name, ladderOption)
	v := c.orElse(key, ladder)
	if ns.Ladder, err = ParseLadder(v.text); err != nil && v != ladder {
		// A value that was taken over is reported where it was set.
		errs = append(errs, v.wrap(key, err))
	}
	key = namespaceKey(name, onColdOption)
	v = c.orElse(key, onCold)
	if err := setChoice(&ns.OnCold, v.text, "allow", "deny"); err != nil && v != onCold {
		errs = append(errs, v.wrap(key, err))
	}
	return ns, errors.Join(errs...)
}

// orElse returns the value of a name, which becomes other if it has none.
func (c *Config) orElse(name string, other value) value {
	v, ok := c.values[name]
	if !ok {
		v = other
		c.values[name] = v
	}
	return v
}

func namespaceKey(name, option string) string { return namespacePrefix + name + "." + option }

func (c Config) printNamespaces(out *strings.Builder) {
	for _, name := range slices.Sorted(maps.Keys(c.Namespaces)) {
		for _, option := range []string{ladderOption, onColdOption} {
			key := namespaceKey(name, option)
			printLine(out, key, c.values[key])
		}
	}
}

// ParseLadder reads levels such as "1s x 60, 1m x 60, 15m x 96": the width of a bucket times their number, finest first.
// What makes a ladder of them is for [leaparray.NewLadder] to say.
func ParseLadder(text string) ([]Level, error) {
	var levels []Level
	for part := range strings.SplitSeq(text, ",") {
		level, err := parseLevel(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		levels = append(levels, level)
	}
	if _, err := leaparray.NewLadder(levels...); err != nil {
		return nil, err
	}
	return levels, nil
}

func parseLevel(text string) (Level, error) {
	width, count, ok := strings.Cut(text, "x")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if !ok || err != nil {
		return Level{}, fmt.Errorf("%q is not WIDTH x COUNT, such as 1s x 60", text)
	}
	w, err := ParseDuration(strings.TrimSpace(width))
	return Level{Width: w, Count: n}, err
}
