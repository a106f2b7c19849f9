package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/pflag"

	"twotier.dev/twotier/internal/warning"
)

// rulesPath is the path of the rules.
const rulesPath = "/v1/rules"

type ruleFlags struct {
	token   string
	version int64
	names   string
	config  string
	top     int

	ns, windows string
	percentile  float64
}

func rulesSpec() spec {
	return spec{
		name: "rules", args: "ACTION [FILE|N] [flags]",
		summary: "show the rules, try them, or change them while the cluster runs",
		timeout: backtestTimeout,
		details: "ACTION is show, check FILE, test FILE, diff FILE, backtest FILE, suggest, " +
			"apply FILE, history or rollback N.\n\n" +
			"The cluster has one document of rules, in versions of which the last 20 are " +
			"kept. show prints it as it was written, apply replaces it with a file, diff shows " +
			"the changes that this would make, backtest the effect of its rules, history who " +
			"made which version when, and rollback makes an old version the next one. A file " +
			"with a mistake is refused whole. Every node has a new version within a second. " +
			"Where nodes have --admin, changes are made there: --server " +
			"http://127.0.0.1:8090.\n\n" +
			"check needs no server: it prints the mistakes of a file, with line and column, and " +
			"valid lines that probably do something else than intended. Exit status 1 if " +
			"there is a mistake; a warning is none. A limit can only look back as far as the " +
			"ladder of its namespace; for a longer one check prints the level that it needs.\n\n" +
			"test needs no server either: it makes the requests of a file of tests, at the times " +
			"that it names, and compares the answers with the expected ones. Exit status 1 if " +
			"one differs.\n\n" +
			"backtest looks at the keys with the most events in the last day and in the last " +
			"minute, and at the most refused ones. It shows for each rule of a file, or in " +
			"force, how many of them it would refuse now (REFUSING) and how many of the EVENTS " +
			"that they had in the last day it would have REFUSED, were it on; and for each key " +
			"the events in the window of a limit, now (COUNT) and at most (PEAK). 3-5 is at " +
			"least 3 and at most 5. Nothing is counted or changed.\n\n" +
			"suggest prints a limit for each window that nearly all keys of a namespace, or of a " +
			"rule in force, never reached in the last day, as rules below comments with the " +
			"figures: the percentiles of the keys' busiest windows, and the refusals that the " +
			"limits would have caused. It examines all keys in memory, or a uniform sample of " +
			"10000.\n\n" +
			"apply and rollback take the --admin-token of the servers, or a token with the role " +
			"admin.",
		examples: "twotier rules show > rules.yaml\n" +
			"twotier rules check rules.yaml --config twotier.yaml\n" +
			"twotier rules test rules-test.yaml\n" +
			"twotier rules diff rules.yaml\n" +
			"twotier rules backtest rules.yaml\n" +
			"twotier rules suggest --windows 1m,24h > rules.yaml\n" +
			"TWOTIER_ADMIN_TOKEN=... twotier rules apply rules.yaml\n" +
			"TWOTIER_ADMIN_TOKEN=... twotier rules rollback 6",
		valid: []string{"show", "check", "test", "apply", "diff", "backtest", "suggest",
			"history", "rollback"},
		bind: func(fs *pflag.FlagSet) runner {
			var f ruleFlags
			f.bind(fs)
			return func(ctx context.Context, s *session, args []string) error {
				s.client.token = cmp.Or(f.token, s.getenv("TWOTIER_ADMIN_TOKEN"), s.client.token)
				s.client.unknown = "they may or may not have changed; twotier rules history tells"
				return s.runRules(ctx, f, args)
			}
		},
	}
}

func (f *ruleFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.token, "admin-token", "",
		"`TEXT` that the servers were started with (default $TWOTIER_ADMIN_TOKEN)")
	fs.Int64Var(&f.version, "version", 0,
		"`NUMBER` of the version that show prints, or that apply replaces")
	fs.StringVar(&f.names, "rule", "",
		"`NAMES` of rules in force for backtest and suggest, with commas between them")
	fs.StringVar(&f.ns, "ns", "", "`NAMESPACE` whose keys suggest examines")
	fs.StringVar(&f.windows, "windows", "",
		"`WINDOWS` of the limits to suggest, with commas between them (default 1m,24h)")
	fs.Float64Var(&f.percentile, "percentile", suggestPercentile,
		"`PERCENTAGE` of the keys that never reached the suggested limits")
	fs.StringVar(&f.config, "config", "",
		"`FILE` of settings whose namespaces check and test are to know")
	fs.IntVar(&f.top, "top", backtestTop,
		"`NUMBER` of keys in each list that backtest looks at, up to 1000")
}

// ruleAction is an action of rules: its operand, in brackets if it may be missing, and the method.
type ruleAction struct {
	operand string
	run     func(ctx context.Context, f ruleFlags, operand string) error
}

func (s *session) ruleActions() map[string]ruleAction {
	return map[string]ruleAction{
		"show": {"", s.showRules}, "history": {"", s.showRuleHistory},
		"suggest": {"", s.suggestRules}, "apply": {"FILE", s.applyRules},
		"check": {"FILE", s.checkRules}, "diff": {"FILE", s.diffRules},
		"test": {"FILE", s.testRules}, "backtest": {"[FILE]", s.backtestRules},
		"rollback": {"VERSION", s.rollBackRules},
	}
}

// runRules runs the action that the first argument names.
func (s *session) runRules(ctx context.Context, f ruleFlags, args []string) error {
	action, operand := "show", ""
	if len(args) > 0 {
		action, args = args[0], args[1:]
	}
	do, known := s.ruleActions()[action]
	switch {
	case !known:
		return usagef("%q is none of show, check, test, apply, diff, backtest, suggest, history "+
			"and rollback", action)
	case do.operand == "[FILE]" && len(args) == 0:
	case do.operand != "" && len(args) == 0:
		return usagef("the %s is missing", do.operand)
	case do.operand != "":
		operand, args = args[0], args[1:]
	}
	if err := RefuseArgs(nil, args); err != nil {
		return err
	}
	return do.run(ctx, f, operand)
}

// readRules returns the stored text of a version of the rules, and its number in quotes. Version 0
// is the one in force.
func (s *session) readRules(ctx context.Context, version int64, media string) (message, string,
	error) {
	query := url.Values{}
	if version != 0 {
		query.Set("version", strconv.FormatInt(version, 10))
	}
	answer, err := s.client.exchange(ctx, http.MethodGet, rulesPath, query,
		message{header: http.Header{"Accept": {media}}})
	return answer, answer.header.Get("ETag"), err
}

func (s *session) showRules(ctx context.Context, f ruleFlags, _ string) error {
	if s.json {
		answer, _, err := s.readRules(ctx, f.version, "application/json")
		return s.printRaw(answer.body, err)
	}
	answer, tag, err := s.readRules(ctx, f.version, "application/yaml")
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Stderr, "version %s\n", unquote(tag))
	return s.printf("%s\n", strings.TrimRight(string(answer.body), "\n"))
}

// applyRules replaces a version with a file. Version 0 stands for the one in force.
func (s *session) applyRules(ctx context.Context, f ruleFlags, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	tag := strconv.Quote(strconv.FormatInt(f.version, 10))
	if f.version == 0 {
		if _, tag, err = s.readRules(ctx, 0, "application/yaml"); err != nil {
			return err
		}
	}
	return s.putRules(ctx, tag, text)
}

// putRules stores a text as the successor of the version with that tag.
func (s *session) putRules(ctx context.Context, tag string, text []byte) error {
	answer, err := s.client.exchange(ctx, http.MethodPut, rulesPath, nil, message{body: text,
		header: http.Header{"Content-Type": {"application/yaml"}, "If-Match": {tag}}})
	err = s.printRaw(answer.body, err)
	switch p, ok := errors.AsType[*Problem](err); {
	case ok && p.Status == http.StatusPreconditionFailed:
		return errors.New("somebody else has changed the rules: see twotier rules history; " +
			"nothing has changed now")
	case err != nil || s.json:
		return err
	}
	var made struct{ Warnings []warning.Warning }
	if err := json.Unmarshal(answer.body, &made); err != nil {
		return err
	}
	for _, w := range made.Warnings {
		fmt.Fprintln(s.Stderr, "warning:", w)
	}
	now := answer.header.Get("ETag")
	if now == tag {
		return s.printf("version %s is the same already\n", unquote(now))
	}
	return s.printf("version %s is in force in place of %s\n", unquote(now), unquote(tag))
}

// unquote returns the number in an entity tag.
func unquote(tag string) string { return strings.Trim(tag, `"`) }

// diffRules prints how a file differs from the rules in force, as diff -u does; nothing if they are
// equal.
func (s *session) diffRules(ctx context.Context, _ ruleFlags, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	answer, tag, err := s.readRules(ctx, 0, "application/yaml")
	if err != nil {
		return err
	}
	_, err = s.Stdout.Write(diff.Diff("version "+unquote(tag), answer.body, path, text))
	return err
}

// rollBackRules stores the text of an old version as the next version.
func (s *session) rollBackRules(ctx context.Context, _ ruleFlags, operand string) error {
	version, err := strconv.ParseInt(operand, 10, 64)
	if err != nil || version < 1 {
		return usagef("%q is not the number of a version", operand)
	}
	old, _, err := s.readRules(ctx, version, "application/yaml")
	if err != nil {
		return err
	}
	_, tag, err := s.readRules(ctx, 0, "application/yaml")
	if err != nil {
		return err
	}
	return s.putRules(ctx, tag, old.body)
}

func (s *session) showRuleHistory(ctx context.Context, _ ruleFlags, _ string) error {
	return ask(ctx, s, get(rulesPath, queryOf("history", "true")), func(answer *struct {
		Versions []struct {
			Version, At, Bytes int64
			Who                string
		}
	}) error {
		t := table{left: 3}
		t.add("VERSION", "AT", "WHO", "BYTES")
		for _, v := range answer.Versions {
			t.add(v.Version, formatSecond(v.At), quoteUnprintable(v.Who), v.Bytes)
		}
		return t.print(s.Stdout)
	})
}
