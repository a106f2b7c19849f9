package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"twotier.dev/twotier/leaparray"
)

const (
	ladderOption   = "ladder"
	exactOption    = "exact"
	onColdOption   = "on-cold"
	maxKeysOption  = "max-keys"
	hashTagsOption = "hash-tags"
)

// namespaceOptions returns the options of a namespace in printing order.
func namespaceOptions() []string {
	return []string{ladderOption, exactOption, onColdOption, maxKeysOption, hashTagsOption}
}

// fillNamespaces sets c.Namespaces from the values in the file. It begins with the default
// namespace, because the others inherit its options.
func (c *Config) fillNamespaces(file map[string]map[string]value) error {
	c.Namespaces, c.namespaceValues = map[string]Namespace{}, map[string]map[string]value{}
	base := map[string]value{
		ladderOption:   {text: leaparray.Default().String(), origin: FromDefault},
		exactOption:    {text: strconv.Itoa(leaparray.DefaultExact), origin: FromDefault},
		onColdOption:   c.values[onColdOption],
		maxKeysOption:  {text: "0", origin: FromDefault},
		hashTagsOption: {text: "false", origin: FromDefault},
	}
	errs := []error{c.fillNamespace(DefaultNamespace, file[DefaultNamespace], base)}
	base = c.namespaceValues[DefaultNamespace]
	for _, name := range slices.Sorted(maps.Keys(file)) {
		if name != DefaultNamespace {
			errs = append(errs, c.fillNamespace(name, file[name], base))
		}
	}
	return errors.Join(errs...)
}

// fillNamespace sets one namespace from its own values, and from base where it has none.
func (c *Config) fillNamespace(name string, own, base map[string]value) error {
	var (
		ns   Namespace
		errs []error
	)
	all := maps.Clone(base)
	maps.Copy(all, own)
	for _, option := range namespaceOptions() {
		// A bad inherited value is reported only where it was set.
		err := ns.set(option, all[option].text)
		if v, set := own[option]; err != nil && set {
			errs = append(errs, v.wrap(namespacesKey+"."+name+"."+option, err))
		}
	}
	c.Namespaces[name], c.namespaceValues[name] = ns, all
	return errors.Join(errs...)
}

// set sets one option from its text.
func (ns *Namespace) set(option, text string) (err error) {
	switch option {
	case ladderOption:
		ns.Levels, err = ParseLadder(text)
	case exactOption:
		ns.Exact, err = integer(0, leaparray.MaxExact,
			fmt.Sprintf("a number of events, 0 to %d", leaparray.MaxExact))(text)
	case onColdOption:
		ns.OnCold, err = text, checkChoice(text, coldChoices())
	case maxKeysOption:
		if ns.MaxKeys, err = strconv.ParseInt(text, 10, 64); err != nil || ns.MaxKeys < 0 {
			err = fmt.Errorf("%q is not a number of keys, 0 or more", text)
		}
	case hashTagsOption:
		ns.HashTags, err = parseBool(text)
	}
	return err
}

// ParseLadder reads levels such as "1s x 60, 1m x 60, 15m x 96": the width of a bucket and the
// number of buckets, finest level first. [leaparray.NewLadder] checks that the levels form a
// ladder.
func ParseLadder(text string) ([]Level, error) {
	var levels []Level
	for part := range strings.SplitSeq(text, ",") {
		level, err := parseLevel(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		levels = append(levels, level)
	}
	if _, err := leaparray.NewLadder(0, levels...); err != nil {
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
