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
	maxKeysOption   = "max-keys"
	// defaultLadder covers one minute, one hour and a day.
	defaultLadder = "1s x 60, 1m x 60, 15m x 96"
)

// splitNamespace takes "namespace.NAME.OPTION" apart. NAME may have dots itself.
func splitNamespace(full string) (name, option string, err error) {
	rest := strings.TrimPrefix(full, namespacePrefix)
	dot := strings.LastIndexByte(rest, '.')
	if dot <= 0 {
		return "", "", fmt.Errorf("%s is not namespace.NAME.ladder, namespace.NAME.on-cold or namespace.NAME.max-keys", full)
	}
	name, option = rest[:dot], rest[dot+1:]
	if !slices.Contains(namespaceOptions(), option) {
		return "", "", fmt.Errorf("unknown setting %q; a namespace has ladder, on-cold and max-keys", full)
	}
	if err := checkName(name); err != nil {
		return "", "", fmt.Errorf("namespace %w", err)
	}
	return name, option, nil
}

// namespaceOptions lists what can be set of a namespace, in the order in which it is printed.
func namespaceOptions() []string { return []string{ladderOption, onColdOption, maxKeysOption} }

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
	base := map[string]value{
		ladderOption:  {text: defaultLadder, origin: FromDefault},
		onColdOption:  c.values[onColdOption],
		maxKeysOption: {text: "0", origin: FromDefault},
	}
	ns, err := c.namespace(DefaultNamespace, base)
	errs = append(errs, err)
	c.Namespaces[DefaultNamespace] = ns
	for option := range base {
		base[option] = c.values[namespaceKey(DefaultNamespace, option)]
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if c.Namespaces[name], err = c.namespace(name, base); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// namespace returns the settings of one namespace, given what it takes for those that it doesn't set.
func (c *Config) namespace(name string, base map[string]value) (ns Namespace, err error) {
	var errs []error
	ladder, onCold, maxKeys := base[ladderOption], base[onColdOption], base[maxKeysOption]
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
	key = namespaceKey(name, maxKeysOption)
	v = c.orElse(key, maxKeys)
	if ns.MaxKeys, err = strconv.ParseInt(v.text, 10, 64); (err != nil || ns.MaxKeys < 0) && v != maxKeys {
		errs = append(errs, v.wrap(key, fmt.Errorf("%q is not a number of keys, 0 or more", v.text)))
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
		for _, option := range namespaceOptions() {
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
