package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/imports"
)

// importPatience is how long an import waits for a server that does not answer.
const importPatience = 30 * time.Second

type importFlags struct {
	from, pattern, as, ns, format, member, unit, until, source, ack string
	width, window                                                   time.Duration
	limit                                                           []limit
	burst                                                           int64
	rate                                                            int
	dryRun                                                          bool
}

func (f *importFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.from, "from", "", "`URL` of the limiter's Redis, such as redis://10.0.0.5:6379")
	fs.StringVar(&f.pattern, "pattern", "",
		"`TEXT` that matches the limiter's keys, with {key} for the part that differs; {start} or "+
			"{index} for the time of a window")
	fs.StringVar(&f.as, "as", "{key}", "key in twotier, a `TEXT` with names from --pattern")
	fs.StringVar(&f.ns, "ns", "", "`NAMESPACE` of the keys in twotier")
	fs.StringVar(&f.format, "format", string(imports.Auto),
		"`FORM` of the state: auto (found out, except for strings without a time in their names), "+
			"zset, list, hash, fixed, weighted (two windows), redis-cell or redis_rate")
	_ = fs.SetAnnotation("format", config.ChoicesAnnotation, imports.Formats()) // it exists
	fs.StringVar(&f.member, "member", "",
		"`TEXT` that matches the members of a zset, with {n} for the number of events that each "+
			"stands for, such as {id}:{n} (default one each)")
	fs.StringVar(&f.unit, "unit", "auto", "`UNIT` of times: auto, s, ms, us or ns")
	_ = fs.SetAnnotation("unit", config.ChoicesAnnotation, imports.Units())
	fs.Var((*duration)(&f.width), "width",
		"`WIDTH` of the windows whose index is a field of a hash, or {index}")
	fs.Var((*duration)(&f.window), "window",
		"`WINDOW` of fixed windows that end when their key expires, or of weighted ones")
	limitsVar(fs, &f.limit, "`MAX/WINDOW` of redis-cell or redis_rate: their rate")
	fs.Int64Var(&f.burst, "burst", 0,
		"`NUMBER` of events that they let pass at once (default that of --limit)")
	fs.StringVar(&f.until, "until", "",
		"leave out events after `TIME`, such as 2026-01-31T12:00:00Z or unix milliseconds")
	fs.StringVar(&f.source, "source", "",
		"`NAME` of the source, if several have keys of the same names")
	fs.IntVar(&f.rate, "rate", 0, "most commands `PER SECOND` to the limiter's Redis")
	ackVar(fs, &f.ack)
	fs.BoolVar(&f.dryRun, "dry-run", false, "only report, count nothing")
}

func importSpec() spec {
	return spec{
		name: "import", args: "--from URL --pattern TEXT [flags]",
		summary: "count the events that another limiter has in Redis",
		details: "Reads the state of a limiter from Redis and counts its events at their own " +
			"times: sorted sets and lists of times, hashes of sub-windows, fixed and weighted " +
			"windows in strings, redis-cell and redis_rate. It only reads from Redis. Each " +
			"event is counted once: to repeat an import, also one that was killed, adds only " +
			"new events.\n\n" +
			"Exit status: 0 done, 1 some keys could not be imported, or nothing could be " +
			"counted, or no answer, 2 wrong usage.",
		examples: "twotier import --from redis://10.0.0.5 --pattern 'rl:{key}' --dry-run\n" +
			"twotier import --from redis://10.0.0.5 --pattern 'limit:{key}:hash' --width 1m\n" +
			"twotier import --from redis://10.0.0.5 --pattern 'rate:{key}' \\\n" +
			"  --format redis_rate --limit 10/1m\n" +
			"twotier import --from redis://10.0.0.5 --pattern 'api_user_{key}_{start}'",
		alone: true,
		bind: func(fs *pflag.FlagSet) runner {
			var f importFlags
			f.addFlags(fs)
			return func(ctx context.Context, s *session, _ []string) error {
				return s.importFrom(ctx, &f)
			}
		},
	}
}

func (f *importFlags) sourceOptions(timeout time.Duration) (opt imports.SourceOptions, err error) {
	opt = imports.SourceOptions{URL: f.from, Format: imports.Format(f.format), Unit: f.unit,
		Width: f.width, Window: f.window, Burst: f.burst, CommandsPerSecond: f.rate,
		Timeout: timeout}
	switch {
	case f.from == "":
		return opt, usagef("--from: want the URL of the limiter's Redis, such as redis://host:6379")
	case f.pattern == "":
		return opt, usagef("--pattern: want a pattern of its keys, such as 'rl:{key}'")
	case !slices.Contains(imports.Formats(), f.format):
		return opt, usagef("--format: %q is not one of %s", f.format,
			strings.Join(imports.Formats(), ", "))
	case !slices.Contains(imports.Units(), f.unit):
		return opt, usagef("--unit: %q is not one of %s", f.unit,
			strings.Join(imports.Units(), ", "))
	case f.width < 0 || f.width%time.Millisecond != 0:
		return opt, usagef("--width: want whole milliseconds, more than 0")
	case f.rate < 0:
		return opt, usagef("--rate: %d is not a number of commands", f.rate)
	}
	if opt.Pattern, err = imports.ParsePattern(f.pattern); err != nil {
		return opt, usagef("--pattern: %w", err)
	}
	if f.member != "" {
		if opt.Member, err = imports.ParsePattern(f.member); err != nil {
			return opt, usagef("--member: %w", err)
		}
		if !opt.Member.Has("n") {
			return opt, usagef("--member: %q has no {n}, the number of events", f.member)
		}
	}
	return opt, f.checkFormat(&opt)
}

func (f *importFlags) checkFormat(opt *imports.SourceOptions) error {
	timed := opt.Pattern.Has("start") || opt.Pattern.Has("index")
	switch opt.Format {
	case imports.Fixed:
		if !timed && f.window <= 0 {
			return usagef("--window: want the length of the windows, or {start} or {index} in " +
				"--pattern")
		}
	case imports.Weighted:
		if !opt.Pattern.Has("index") && f.window <= 0 {
			return usagef("--window: want the length of the windows, or {index} in --pattern")
		}
	case imports.RedisCell, imports.RedisRate:
		if len(f.limit) != 1 || f.limit[0].Max < 1 {
			return usagef("--limit: want the rate of the limiter, such as 10/1m")
		}
		period, err := config.ParseDuration(f.limit[0].Window)
		if err != nil {
			return usagef("--limit: %w", err)
		}
		opt.Rate, opt.Period = f.limit[0].Max, period
		if opt.Burst == 0 {
			opt.Burst = opt.Rate
		}
		if opt.Burst < 1 || opt.Burst > 1_000_000 {
			return usagef("--burst: want 1 to 1000000")
		}
	}
	if opt.Member != nil && opt.Format != imports.Auto && opt.Format != imports.ZSet {
		return usagef("--member: only a zset has members")
	}
	if opt.Pattern.Has("index") && f.width <= 0 {
		return usagef("--width: want the width of the windows whose {index} is in --pattern")
	}
	return nil
}

func (f *importFlags) options(pattern *imports.Pattern) (opt imports.Options, err error) {
	opt = imports.Options{Namespace: f.ns, Source: f.source, DryRun: f.dryRun}
	if opt.Key, err = imports.ParsePattern(f.as); err != nil {
		return opt, usagef("--as: %w", err)
	}
	if name := opt.Key.Unknown(pattern); name != "" {
		return opt, usagef("--as: {%s} is not in --pattern", name)
	}
	if f.until != "" {
		if opt.Until, err = parseMoment(f.until); err != nil {
			return opt, usagef("--until: %w", err)
		}
	}
	return opt, checkAck(f.ack)
}

func parseMoment(text string) (int64, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms > 0 {
		return ms, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, fmt.Errorf("%q is neither unix milliseconds nor a time such as "+
			"2026-01-31T12:00:00Z", text)
	}
	return t.UnixMilli(), nil
}

// errImportFailed is returned if some keys could not be imported, after they have been printed.
var errImportFailed = errors.New("some keys could not be imported; all others were")

// importFrom imports the state of a limiter.
func (s *session) importFrom(ctx context.Context, f *importFlags) error {
	sourceOptions, err := f.sourceOptions(s.client.timeout)
	if err != nil {
		return err
	}
	opt, err := f.options(sourceOptions.Pattern)
	if err != nil {
		return err
	}
	s.client.unknown = "nothing is counted twice: repeat the command"
	source, err := imports.NewSource(sourceOptions)
	if err != nil {
		return usagef("--from: %w", err)
	}
	defer source.Close()
	var bar *progressBar
	if s.isTerminal(s.Stderr) {
		bar = &progressBar{to: s.Stderr}
		size, err := source.Size(ctx)
		if err != nil {
			return err
		}
		opt.Progress = func(r *imports.Report, seen int64) { bar.show(r, seen, size) }
	}
	server := &importServer{client: s.client, ack: f.ack, patience: importPatience}
	report, err := imports.New(source, server, opt).Run(ctx)
	bar.clear()
	if err != nil {
		return fmt.Errorf("%w\nstopped after %s; repeat the command to go on: nothing is counted "+
			"twice", err, countOf(int(report.Keys), "key"))
	}
	warnings := append(f.warnings(sourceOptions.Pattern, opt.Key, s.ruleNamespaces(ctx)),
		contentWarnings(report)...)
	if err := s.printImport(report, f, warnings); err != nil {
		return err
	}
	if report.FailedKeys > 0 {
		return errImportFailed
	}
	return checkCounted(report)
}

// checkCounted returns why nothing was counted although there is something, or nil.
func checkCounted(r *imports.Report) error {
	switch {
	case r.Counted+r.Repeated+r.Meanwhile > 0:
	case r.Ahead > 0:
		return fmt.Errorf("nothing was counted: %s ahead of the clock; see --unit and --width",
			countOf(int(r.Ahead), "event"))
	case r.TimeKeys > 0:
		return fmt.Errorf("nothing was counted: a time is in %s, and no number of events; see "+
			"--pattern",
			countOf(int(r.TimeKeys), "key"))
	}
	return nil
}

// namespace returns the namespace that counts the events.
func (f *importFlags) namespace() string { return cmp.Or(f.ns, config.DefaultNamespace) }

// warnings lists probable mistakes in the flags. judged are the namespaces with rules.
func (f *importFlags) warnings(from, to *imports.Pattern, judged []string) (list []string) {
	if name := from.Merges(to); name != "" {
		list = append(list, fmt.Sprintf("--as has no {%s}: keys that differ only there become one",
			name))
	}
	if len(judged) > 0 && !slices.Contains(judged, f.namespace()) {
		names := strings.Join(judged[:min(len(judged), mostNamespaces)], ", ")
		if more := len(judged) - mostNamespaces; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		list = append(list, fmt.Sprintf("no rule counts in namespace %s; rules count in: %s (--ns)",
			f.namespace(), names))
	}
	return list
}

// contentWarnings lists probable mistakes that show in the content of the keys.
func contentWarnings(r *imports.Report) (list []string) {
	if r.Held > 0 {
		list = append(list, fmt.Sprintf("the keys of %s live longer than --window: these count "+
			"from now on", countOf(int(r.Held), "event")))
	}
	if r.TimeKeys > 0 {
		list = append(list, fmt.Sprintf("a time is in %s, such as %s, which counts no events; "+
			"make --pattern narrower", countOf(int(r.TimeKeys), "key"),
			quoteUnprintable(r.TimeKey)))
	}
	return list
}

// mostNamespaces is how many namespaces a warning lists.
const mostNamespaces = 10

// ruleNamespaces lists the namespaces of the rules in force, none if they can't be read.
func (s *session) ruleNamespaces(ctx context.Context) (list []string) {
	answer, _, err := s.readRules(ctx, 0, "application/json")
	var rules struct {
		Domain string // of a document of envoyproxy/ratelimit
		Rules  []struct{ Namespace string }
	}
	if err != nil || json.Unmarshal(answer.body, &rules) != nil {
		return nil
	}
	if rules.Domain != "" {
		list = append(list, rules.Domain)
	}
	for _, r := range rules.Rules {
		list = append(list, cmp.Or(r.Namespace, config.DefaultNamespace))
	}
	slices.Sort(list)
	return slices.Compact(list)
}
