package config

import (
	"fmt"
	"strconv"
	"strings"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
)

// DefaultNamespace is the namespace of requests without one.
const DefaultNamespace = "default"

// Namespace holds the settings of one namespace.
type Namespace struct {
	// Levels lists the levels of buckets, finest first.
	Levels []Level
	// Exact is how many of the newest events of a key keep their millisecond; 0 turns that off.
	Exact int
	// ExactValues is how many different values of a key are counted exactly; more are estimated.
	ExactValues int
	// OnCold is as in [Store].
	OnCold string
	// MaxKeys bounds the number of keys in memory; 0 means that only memory bounds it.
	MaxKeys int64
	// HashTags makes the part of a key in braces determine its partition.
	HashTags bool
	// Shadow makes the limits of the namespace refuse nothing.
	Shadow bool
}

// Ladder returns the ladder of the namespace's levels.
func (ns *Namespace) Ladder() (*leaparray.Ladder, error) {
	return leaparray.NewLadder(ns.Exact, ns.Levels...)
}

// InShadow returns the namespaces whose limits refuse nothing, or nil if there are none.
func (c *Config) InShadow() twotier.Shadow {
	shadow, some := twotier.Shadow{}, false
	for name, ns := range c.Namespaces {
		shadow[name] = c.Shadow || ns.Shadow
		some = some || shadow[name]
	}
	if !some {
		return nil
	}
	return shadow
}

// WhereShadow returns where shadow was set for a namespace, or for the namespace that it inherits
// from: FILE:LINE:COLUMN, or "" if the namespace has the default.
func (c *Config) WhereShadow(namespace string) string {
	return c.namespaceValues[namespace][shadowOption].where
}

// Level is a number of buckets of one width.
type Level = leaparray.Level

const (
	ladderOption   = "ladder"
	exactOption    = "exact"
	valuesOption   = "exact-values"
	onColdOption   = "on-cold"
	maxKeysOption  = "max-keys"
	hashTagsOption = "hash-tags"
	shadowOption   = "shadow"
)

// maxValues bounds the memory of a key with different values: 16 bytes for each.
const maxValues = 1 << 16

// namespaceOptions returns the options of a namespace in printing order.
func namespaceOptions() []string {
	return []string{ladderOption, exactOption, valuesOption, onColdOption, maxKeysOption,
		hashTagsOption, shadowOption}
}

// set sets one option from its text.
func (ns *Namespace) set(option, text string) (err error) {
	switch option {
	case ladderOption:
		ns.Levels, err = ParseLadder(text)
	case exactOption:
		ns.Exact, err = parseIntegerWithin(0, leaparray.MaxExact,
			fmt.Sprintf("a number of events, 0 to %d", leaparray.MaxExact))(text)
	case valuesOption:
		ns.ExactValues, err = parseIntegerWithin(1, maxValues,
			fmt.Sprintf("a number of values, 1 to %d", maxValues))(text)
	case onColdOption:
		ns.OnCold, err = text, checkChoice(text, coldChoices())
	case maxKeysOption:
		if ns.MaxKeys, err = strconv.ParseInt(text, 10, 64); err != nil || ns.MaxKeys < 0 {
			err = fmt.Errorf("%q is not a number of keys, 0 or more", text)
		}
	case hashTagsOption:
		ns.HashTags, err = parseBool(text)
	case shadowOption:
		ns.Shadow, err = parseBool(text)
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
