package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"twotier.dev/twotier/internal/cli"
	"twotier.dev/twotier/internal/config"
	"twotier.dev/twotier/internal/version"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go watchSignals(signals, cancel, func(s os.Signal) {
		reportLeaving(s, jsonErrorLog(os.Args[1:], os.Environ(), os.Stderr), os.Stderr)
		os.Exit(exitFailed)
	})
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// watchSignals calls cancel on the first signal and leave on the second.
func watchSignals(signals <-chan os.Signal, cancel func(), leave func(os.Signal)) {
	<-signals
	cancel()
	leave(<-signals)
}

// reportLeaving reports why the program ends at once: in log, or on stderr if log is nil.
func reportLeaving(s os.Signal, log *slog.Logger, stderr io.Writer) {
	if log != nil {
		log.Error("leaving at once, without waiting for anything", "signal", s.String())
		return
	}
	fmt.Fprintf(stderr, "twotier: %v again: leaving at once, without waiting for anything\n", s)
}

// The exit statuses.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
)

// errNoCommand is the error of an empty command line. The help has already been printed.
var errNoCommand = errors.New("no command")

// run executes one command line, without the program's name, and returns its exit status.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	root := newRoot(cli.IO{Environ: environ, Stdout: stdout, Stderr: stderr})
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	reportError(stderr, jsonErrorLog(args, environ, stderr), cmd, err)
	return statusOf(err)
}

// newRoot returns the command that holds all others. It does not use cobra's own version flag: that
// would link text/template, which makes the linker keep every exported method of the program, 16
// MB.
func newRoot(o cli.IO) *cobra.Command {
	root := &cobra.Command{
		Use: "twotier COMMAND [flags]", Short: "counts events in sliding windows",
		Long: rootText, Example: rootExamples,
	}
	asked := root.Flags().BoolP("version", "v", false, "print the version")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *asked {
			return printVersion(o)
		}
		cmd.SetOut(o.Stderr)
		return errors.Join(cmd.Help(), errNoCommand)
	}
	addGroup(root, "Run a server:", serveCommand(o), demoCommand(o), tokenCommand(o),
		doctorCommand(o), storedCommand(o))
	addGroup(root, "Ask a running server:", cli.Commands(o)...)
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "print the version", Args: cli.RefuseArgs,
		RunE: func(*cobra.Command, []string) error { return printVersion(o) },
	})
	cli.Prepare(root, o)
	return root
}

// addGroup adds commands that the help lists together under title.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

func serveCommand(o cli.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve [--redis URL] [--config FILE] [flags]", Short: "run a server",
		Long: serveText, Example: serveExamples,
	}
	load := config.Bind(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &cli.UsageError{Err: fmt.Errorf(
				"unexpected argument %q; settings are flags, such as "+
					"--listen 127.0.0.1:8080", args[0])}
		}
		cfg, err := load(o.Environ)
		switch {
		case err != nil:
			return &cli.UsageError{Err: err}
		case cfg.PrintConfig:
			return printConfig(&cfg, o.Stdout, o.Stderr)
		}
		return serve(cmd.Context(), cfg, o.Stdout, o.Stderr)
	}
	return cmd
}

func printVersion(o cli.IO) error {
	_, err := fmt.Fprintf(o.Stdout, "twotier %s %s %s/%s\n", version.String(), runtime.Version(),
		runtime.GOOS, runtime.GOARCH)
	return err
}

// statusOf returns the exit status for the error of a command, if any.
func statusOf(err error) int {
	_, usage := errors.AsType[*cli.UsageError](err)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, cli.ErrRefused):
		return exitRefused
	case errors.Is(err, errNoCommand), usage:
		return exitUsage
	}
	return exitFailed
}

// reportError prints the error of a command, unless the command has done so. log is for servers
// whose stderr is for machines; nil means that people read it.
func reportError(stderr io.Writer, log *slog.Logger, cmd *cobra.Command, err error) {
	_, usage := errors.AsType[*cli.UsageError](err)
	switch {
	case err == nil, errors.Is(err, cli.ErrRefused), errors.Is(err, errNoCommand):
	case log != nil:
		log.Error(cmd.CommandPath(), "error", err, "status", statusOf(err))
	case usage && !cmd.HasParent():
		fmt.Fprintf(stderr, "twotier: %v\nusage: %s, twotier help lists the commands\n", err,
			cmd.UseLine())
	case usage:
		fmt.Fprintf(stderr, "%s: %v\nusage: %s\ntwotier help %s says more\n",
			cmd.CommandPath(), err,
			cmd.UseLine(), cmd.Name())
	default:
		fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), err)
	}
}

// jsonErrorLog returns the logger for the final error of a server with --log-format json, so that
// its stderr is JSON from the first line to the last. It returns nil for everything else.
func jsonErrorLog(args, environ []string, stderr io.Writer) *slog.Logger {
	if len(args) == 0 || args[0] != "serve" || config.FindLogFormat(args[1:], environ) != "json" {
		return nil
	}
	return slog.New(slog.NewJSONHandler(stderr, nil))
}

const rootText = `Memory answers, Redis remembers. twotier serve is the server, and the other
commands talk to one. They find it with --server or TWOTIER_SERVER, and present
a token with --token-file or TWOTIER_TOKEN. twotier help COMMAND says more.

Exit status: 0 all went well, 1 it did not, 2 wrong usage, 3 acquire or distinct
was refused.`

const rootExamples = `twotier demo
twotier serve &
twotier add alice -n 3
twotier acquire alice --limit 15/1m --limit 50/24h
twotier count alice --window 1m,37m,24h`

const serveText = `Serves the HTTP API until SIGTERM or SIGINT, then flushes what Redis does not
have yet and exits with status 0. When it is ready it prints one line of JSON to
stdout, with the address of each listener. Logs go to stderr. Without --redis
nothing outlives the process.

Every flag can also be set in the environment (--flush-interval is
TWOTIER_FLUSH_INTERVAL) or in a YAML file (flush-interval: 200ms). A flag wins
over the environment, and that over the file. Only the file can have namespaces,
with buckets of their own; what a namespace doesn't set is as in the default one:

    redis: redis://127.0.0.1:6379
    namespaces:
      default:
        ladder: [1s x 100, 1m x 150, 15m x 96] # width of a bucket x how many
        exact: 64 # the newest events of a key keep their millisecond
      login:
        on-cold: deny
        max-keys: 1000000 # most keys in memory; more are refused with 429
      sms:
        hash-tags: true # {188} and {188}:hello have one owner and one partition
    rules: # limits that requests can name; or a file of them, as --rules
      - {name: login, namespace: login, limits: [15/1m, 50/24h]}
      - {name: login-new, namespace: login, limits: [5/1m], state: shadow}

Three nodes of a cluster on one machine; any of them answers for all:

    export TWOTIER_REDIS=redis://127.0.0.1:6379
    export TWOTIER_JOIN=127.0.0.1:7946,127.0.0.1:7947,127.0.0.1:7948
    twotier serve --node a --listen 127.0.0.1:8080 --gossip 127.0.0.1:7946 &
    twotier serve --node b --listen 127.0.0.1:8081 --gossip 127.0.0.1:7947 &
    twotier serve --node c --listen 127.0.0.1:8082 --gossip 127.0.0.1:7948 &`

const serveExamples = `twotier serve
twotier serve --redis redis://127.0.0.1:6379 --ack redis
twotier serve --listen :8080 --tokens tokens.conf
TWOTIER_REDIS=rediss://me:pass@redis:6380 twotier serve --config twotier.yaml
twotier serve --config twotier.yaml --print-config`
