package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"reflect"
	"runtime/pprof"
	"strings"
	"syscall"
	"text/template"

	"github.com/alecthomas/kong"

	"twotier.dev/twotier"
	"twotier.dev/twotier/bench/drive"
	"twotier.dev/twotier/bench/rival"
)

// cli is the command line, to which each step adds a command.
type cli struct {
	Out        string `help:"Directory for results." default:"results"`
	CPUProfile string `name:"cpuprofile" help:"File for a CPU profile of this process."`
	Programs   string `help:"Directory that keeps the built programs for the next command." type:"path"`

	All All `cmd:"" help:"Run all of the following, one at a time."`
	Nop Nop `cmd:"" hidden:"" help:"Serve the same answer to every request."`
}

func main() {
	log.SetFlags(log.Ltime)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// run executes one command line.
func run(ctx context.Context, args []string) (err error) {
	var c cli
	k, err := parse(ctx, &c, args)
	if err != nil {
		return err
	}
	b := &bench{name: k.Selected().Name, out: c.Out, command: commandLine(k), kept: c.Programs}
	defer func() { err = errors.Join(err, b.close()) }()
	return profiled(c.CPUProfile, func() error { return k.Run(b) })
}

// parse reads a command line. A wrong one prints the usage of commands and ends the process.
func parse(ctx context.Context, c *cli, args []string) (*kong.Context, error) {
	options := []kong.Option{kong.Name("bench"), kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil))}
	for _, s := range steps() {
		options = append(options, kong.DynamicCommand(s.name, s.help, "", s.command, s.tags()...))
	}
	parser, err := kong.New(c, options...)
	if err != nil {
		return nil, err
	}
	k, err := parser.Parse(args)
	parser.FatalIfErrorf(err)
	return k, err
}

// commandLine returns the command with the values of all its options, because defaults may change.
func commandLine(k *kong.Context) string {
	words := []string{"go run ./cmd/bench", k.Selected().Name}
	for _, f := range k.Selected().Flags {
		text := strings.ReplaceAll(fmt.Sprint(f.Target.Interface()), " ", ",")
		if f.IsMap() {
			text = strings.ReplaceAll(strings.TrimPrefix(text, "map"), ":", "=")
		}
		text = strings.Trim(text, "[]")
		if strings.ContainsAny(text, "*|") {
			text = "'" + text + "'"
		}
		if text != "" {
			words = append(words, "--"+f.Name+"="+text)
		}
	}
	return strings.Join(words, " ")
}

// profiled writes a profile of the processor time in fn, if there is a path.
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
	name, out, command string // name of the command and of its result
	// kept is the directory of programs that stay, temporary that of programs that are removed.
	kept, temporary string
	env             *rival.Env
}

// dir returns the directory of the programs.
func (b *bench) dir() (dir string, err error) {
	if b.kept == "" && b.temporary == "" {
		b.temporary, err = os.MkdirTemp("", "bench-programs")
	}
	return cmp.Or(b.kept, b.temporary), err
}

// programs builds the programs that rivals are started with, once.
func (b *bench) programs(ctx context.Context) (rival.Env, error) {
	if b.env == nil {
		dir, err := b.dir()
		if err != nil {
			return rival.Env{}, err
		}
		env, err := rival.Build(ctx, dir)
		if err != nil {
			return env, err
		}
		b.env = &env
	}
	return *b.env, nil
}

func (b *bench) close() error {
	if b.temporary == "" {
		return nil
	}
	return os.RemoveAll(b.temporary)
}

//go:embed templates
var templateFiles embed.FS

// templates are the pages, one for each result.
func templates() *template.Template {
	functions := template.FuncMap{
		// ratio takes numbers of all types.
		"ratio":     func(a, b any) float64 { return ratio(number(a), number(b)) },
		"sum":       func(a, b float64) float64 { return a + b },
		"workloads": drive.Workloads,
		"store": func(b *Benchmark) string {
			return stores[b.Get("store")] + ", " + b.Get("keys") + " keys"
		},
		"span":    twotier.FormatMillis,
		"percent": percent,
		"share":   formatShare,
	}
	return template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.md"))
}

// mostShare is the share of the processor time above which a page marks the generator's share.
const mostShare = 0.1

// formatShare formats a generator's share; 0 means unknown.
func formatShare(share float64) string {
	switch {
	case share == 0:
		return "–"
	case share > mostShare:
		return fmt.Sprintf("**%.0f %%**", 100*share)
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

func number(v any) float64 { return reflect.ValueOf(v).Convert(reflect.TypeFor[float64]()).Float() }

// save writes a result with the options of its measurement, and prints the page.
func save(b *bench, options, result any) error {
	f := File{Command: b.command, Machine: ThisMachine(), Options: options, Result: result}
	page, err := f.Write(b.out, b.name, templates())
	fmt.Printf("%s", page)
	return err
}
