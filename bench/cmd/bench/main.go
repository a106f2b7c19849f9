package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"syscall"
	"text/template"

	"github.com/alecthomas/kong"

	"twotier.dev/twotier/bench/rival"
)

// cli is the command line.
type cli struct {
	Out        string `help:"Directory of the results." default:"results"`
	CPUProfile string `name:"cpuprofile" help:"File for a profile of this process."`

	All       All       `cmd:"" help:"Run all of the following, one at a time."`
	Compare   Compare   `cmd:"" help:"Drive every limiter through the same workloads."`
	HTTP      HTTP      `cmd:"" help:"Compare POST /v1/add with a server that does nothing."`
	Forward   Forward   `cmd:"" help:"Measure what forwarding to the owner of a key costs."`
	Decisions Decisions `cmd:"" help:"Judge decisions by an exact log of what was admitted."`
	Interval  Interval  `cmd:"" help:"Measure what the flush interval trades."`
	Loss      Loss      `cmd:"" help:"Measure what kill -9 loses."`
	Growth    Growth    `cmd:"" help:"Measure how costs grow with keys, rules and nodes."`
	Memory    Memory    `cmd:"" help:"Measure what a key and garbage collection cost."`
	Messages  Messages  `cmd:"" help:"Search the highest rate of message control."`
	Micro     Micro     `cmd:"" help:"Run the Go benchmarks of the parts by themselves."`
	Report    Report    `cmd:"" help:"Make one page of what the others have written."`
	Nop       Nop       `cmd:"" hidden:"" help:"Serve the same answer to every request."`
}

func main() {
	log.SetFlags(log.Ltime)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// run carries out one command line.
func run(ctx context.Context, args []string) (err error) {
	var c cli
	parser, err := kong.New(&c, kong.Name("bench"), kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		return err
	}
	k, err := parser.Parse(args)
	parser.FatalIfErrorf(err)
	b := &bench{out: c.Out, command: commandLine(k)}
	defer func() { err = errors.Join(err, b.close()) }()
	return profiled(c.CPUProfile, func() error { return k.Run(b) })
}

// commandLine returns the command with the values of all its options, because defaults may change.
func commandLine(k *kong.Context) string {
	words := []string{"go run ./cmd/bench", k.Selected().Name}
	for _, f := range k.Selected().Flags {
		v := f.Target.Interface()
		if list, ok := v.([]string); ok {
			v = strings.Join(list, ",")
		}
		text := strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ","), "[]")
		if strings.Contains(text, "*") {
			text = "'" + text + "'"
		}
		if text != "" {
			words = append(words, "--"+f.Name+"="+text)
		}
	}
	return strings.Join(words, " ")
}

// profiled writes a profile of the processor's time in fn, if there is a path.
func profiled(path string, fn func() error) error {
	if path == "" {
		return fn()
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(fmt.Errorf("profile: %w", err), file.Close())
	}
	err = fn()
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close())
}

// bench is the state that all commands share.
type bench struct {
	out, command string
	env          *rival.Env
	remove       func() error
}

// programs builds the programs that rivals are started with, once.
func (b *bench) programs(ctx context.Context) (rival.Env, error) {
	if b.env == nil {
		env, remove, err := rival.Build(ctx)
		if err != nil {
			return env, err
		}
		b.env, b.remove = &env, remove
	}
	return *b.env, nil
}

func (b *bench) close() error {
	if b.remove == nil {
		return nil
	}
	return b.remove()
}

//go:embed templates
var templateFiles embed.FS

// templates are the pages, one for each result.
func templates() *template.Template {
	functions := template.FuncMap{
		"ms":         func(us int64) float64 { return float64(us) / 1e3 },
		"thousandth": func(v float64) float64 { return v / 1e3 },
		"millions":   func(v float64) float64 { return v / 1e6 },
		"us":         func(seconds float64) float64 { return seconds * 1e6 },
		"float":      func(n int64) float64 { return float64(n) },
		"gib":        func(bytes int64) float64 { return float64(bytes) / (1 << 30) },
		"share":      func(v float64) float64 { return 100 * v },
	}
	return template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.md"))
}

// save writes a result with the options it was measured under, and prints the page.
func save[T any](b *bench, name string, options any, result T) error {
	f := File[T]{Command: b.command, Machine: ThisMachine(), Result: result}
	page, err := f.Write(b.out, name, templates(), options)
	fmt.Print(page)
	return err
}
