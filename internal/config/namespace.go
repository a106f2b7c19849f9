package config

import (
	"fmt"
	"math"
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
	MaxKeys int
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

// The options that are settings of the server, too, or whose values are changed.
const (
	ladderOption = "ladder"
	onColdOption = "on-cold"
	shadowOption = "shadow"
)

// maxValues bounds the memory of a key with different values: 16 bytes for each.
const maxValues = 1 << 16

// namespaceSettings lists the options of a namespace in printing order. They are parsed into ns.
func namespaceSettings(ns *Namespace) []setting {
	return []setting{
		{name: ladderOption, def: leaparray.Default().String(), arg: "LEVEL,...",
			set: setParsed(&ns.Levels, ParseLadder)},
		{name: "exact", def: strconv.Itoa(leaparray.DefaultExact),
			set: setParsed(&ns.Exact, parseIntegerWithin(0, leaparray.MaxExact,
				fmt.Sprintf("a number of events, 0 to %d", leaparray.MaxExact)))},
		{name: "exact-values", def: strconv.Itoa(leaparray.DefaultMostValues),
			set: setParsed(&ns.ExactValues, parseIntegerWithin(1, maxValues,
				fmt.Sprintf("a number of values, 1 to %d", maxValues)))},
		{name: onColdOption, choices: coldChoices(), set: setText(&ns.OnCold)},
		{name: "max-keys", def: "0", set: setParsed(&ns.MaxKeys,
			parseIntegerWithin(0, math.MaxInt, "a number of keys, 0 or more"))},
		{name: "hash-tags", def: "false", set: setParsed(&ns.HashTags, parseBool)},
		{name: shadowOption, def: "false", set: setParsed(&ns.Shadow, parseBool)},
	}
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
