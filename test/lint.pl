#!/usr/bin/perl
# Rules of the project that a machine can check; needs nothing but perl.
#
#   usage: perl test/lint.pl      (make lint; also the first kind of make test)
#
# An error fails, a warning only speaks.  Each rule is one sub below.
use strict;
use warnings;
use FindBin;

# The layers of src/: a file includes its own header and headers of strictly
# lower layers only.
my @layers = (
  [qw(dailyrollup compat image pack room rows attempt)],
  [qw(guc shared boundary identity debug aggregates keytable measure expression shape source columns order partner parallel worth patch)],
  [qw(catalog databases definition duplicates phrase patience tallyplan rival scan marks descent)],
  [qw(announce catalog_write locks stop request objects plans progress watermark change tally seen marked layout permit owned)],
  [qw(query compare target content intact intake tail view)],
  [qw(folding event check current guard adopt steps replace sweep)],
  [qw(handover gather)],
  [qw(digest)],
  [qw(late batch offer seize shadow owner remove merge heal)],
  [qw(create refresh chunk fold_batch)],
  [qw(capture fold)],
  [qw(promote ddl drop state)],
  [qw(pass)],
  [qw(run launcher worker hold schedule)],
  [qw(init)],
);

my @top_level = qw(src sql expected test doc dailyrollup.control Makefile
  META.json README.md CHANGELOG.md LICENSE);
my ($max_file, $max_function) = (600, 80);

chdir "$FindBin::Bin/.." or die "lint: $!\n";
my ($errors, $warnings) = (0, 0);
sub error   { print "error: @_\n";   $errors++ }
sub warning { print "warning: @_\n"; $warnings++ }

sub content {
  my ($file) = @_;
  open my $in, '<', $file or die "lint: $file: $!\n";
  local $/;
  my $text = <$in>;
  return defined $text ? $text : '';
}

# Blanks comments out, keeping the lines.
sub without_comments_c {
  my ($text) = @_;
  $text =~ s{("(?:[^"\\\n]|\\.)*")|(/\*.*?\*/)|(//[^\n]*)}
            {defined $1 ? $1 : blank(defined $2 ? $2 : $3)}gse;
  return $text;
}

sub without_comments_sql {
  my ($text) = @_;
  $text =~ s{('(?:[^']|'')*')|(/\*.*?\*/)|(--[^\n]*)}
            {defined $1 ? $1 : blank(defined $2 ? $2 : $3)}gse;
  return $text;
}
sub blank { my ($s) = @_; $s =~ s/[^\n]/ /g; return $s }
sub line_at { my ($text, $pos) = @_; return 1 + (substr($text, 0, $pos) =~ tr/\n//) }

# Without git (a release archive): what lies there, but for build products.
sub project_files {
  my @files = grep { -f } split /\0/,
    `git -c safe.directory='*' ls-files -z --cached --others --exclude-standard 2>/dev/null`;
  return @files if @files;
  return grep { !m{^(?:build|test-output|results|\.git)/|\.(?:o|so|bc|gcno|gcda)$} }
    map { s{^\./}{}r } split /\0/, `find . -type f -print0`;
}

my @files = project_files();
my @sources = grep { m{^src/.*\.[ch]$} } @files;
my @scripts = grep { m{^sql/.*--.*\.sql$} } @files;

sub check_layers {
  my %layer;
  for my $n (0 .. $#layers) { $layer{$_} = $n for @{ $layers[$n] } }
  for my $file (@sources) {
    my ($module) = $file =~ m{^src/([^/]+)\.[ch]$};
    unless (defined $module && defined $layer{$module}) {
      error("$file is in no layer: see \@layers in test/lint.pl");
      next;
    }
    my $text = without_comments_c(content($file));
    while ($text =~ /^\s*#\s*include\s*"([^"]+)"/mg) {
      my $included = $1;
      my $line = line_at($text, $-[0] + 1);
      my $other = $included =~ s{\.h$}{}r;
      if ($included =~ m{^(?:\.|src/)}) {
        error("$file:$line: includes \"$included\" by a path");
      } elsif (!defined $layer{$other}) {
        error("$file:$line: $included is in no layer") if -f "src/$included";
      } elsif ($other ne $module && $layer{$other} >= $layer{$module}) {
        error("$file:$line: layer $layer{$module} includes $included of layer $layer{$other}");
      } elsif ($other eq $module && $file =~ /\.h$/) {
        error("$file:$line: includes itself");
      }
    }
  }
}

sub check_version_tests {
  for my $file (grep { $_ ne 'src/compat.h' } @sources) {
    my $text = without_comments_c(content($file));
    error("$file:" . line_at($text, $-[0]) . ': PG_VERSION_NUM belongs into compat.h')
      while $text =~ /PG_VERSION_NUM/g;
  }
}

sub check_scripts {
  for my $file (@scripts) {
    my $text = without_comments_sql(content($file));
    while ($text =~ /\b(CREATE\s+OR\s+REPLACE|IF\s+NOT\s+EXISTS)\b/gi) {
      error("$file:" . line_at($text, $-[0]) . ": $1 in an extension script");
    }
    my $do = $file =~ /--.*--/
      ? qr/"ALTER EXTENSION dailyrollup UPDATE(?: TO '[^']+')?"/
      : qr/"CREATE EXTENSION dailyrollup"/;
    error("$file: does not begin with the \\echo ... \\quit line")
      unless $text =~ /^\s*\\echo Use $do to load this file\. \\quit$/m
      && $text =~ /^\s*\\echo/;
  }
}

# What an install script may leave to its search_path: nothing, for whoever may
# create objects in a schema of it could have put a better match there.  Words
# that are followed by "(" and call no function:
my %no_function = map { $_ => 1 } qw(all and any as check coalesce exists from greatest in key
  least lateral not nullif on operator or select table tag unique values when with);

sub tokens_of {
  my ($text) = @_;
  my @tokens;
  while ($text =~ /\G(?:(\s+)|('(?:[^']|'')*'|\$\$|"(?:[^"]|"")*"|[A-Za-z_]\w*|\d[\w.]*|::|:=|=>|[-+*\/<>=~!\@#%^&|`?]+|.))/gcs) {
    push @tokens, [$2, $-[0]] if defined $2;
  }
  return @tokens;
}

sub check_tokens {
  my ($say, @tokens) = @_;
  my @word = ('', '', map({ lc $_->[0] } @tokens), '', '');
  my $depth = 0;                # within WITH ( ... )
  for my $n (0 .. $#tokens) {
    my ($before2, $before, $this, $next, $next2) = @word[$n .. $n + 4];
    my $at = $tokens[$n][1];
    $depth = $this eq '(' && ($depth || $before eq 'with') ? $depth + 1 : $this eq ')' && $depth ? $depth - 1 : $depth;
    if ($this =~ /^[-+*\/<>=~!\@#%^&|`?]+$/ && $this ne '=>') {
      next if $this eq '*' && $before =~ /^(?:\.|\(|select)$/;
      next if $this eq '=' && ($depth || $word[2] eq 'create' && $word[3] =~ /^(?:aggregate|type)$/);
      $say->($at, "operator $this without a schema");
    } elsif ($next eq '(' && $this =~ /^\w/ && $before ne '.') {
      # an alias and its columns
      $say->($at, "function $this without a schema") unless $no_function{$this} || $before eq ')';
    } elsif ($next eq '(' && $before eq '.') {
      $say->($at, "$this in schema $before2") unless $before2 =~ /^(?:pg_catalog|dailyrollup|extschema)$/;
    } elsif ($this eq '::') {
      $say->($at, "type $next without a schema") unless $next2 eq '.';
    } elsif ($this =~ /^(?:from|join)$/ && $word[2] !~ /^(?:grant|revoke)$/ && $next =~ /^\w/ && $next !~ /^(?:lateral|select)$/) {
      $say->($at, "relation $next without a schema") unless $next2 eq '.';
    } elsif ($this eq 'create' && $next =~ /^(?:table|view|function|procedure|aggregate|sequence|type)$/) {
      $say->($at, "CREATE of $next2 without a schema") unless ($word[$n + 5] // '') eq '.';
    }
  }
}

sub check_search_path {
  for my $file (@scripts) {
    my $text = without_comments_sql(content($file));
    $text =~ s/\@extschema\@/extschema/g;
    $text =~ s/\bOPERATOR\(pg_catalog\.[^()\s]+\)/ ' ' x length $& /gie;
    $text =~ s/^\\.*$/ ' ' x length $& /gme;
    my $say = sub {
      my ($at, $what) = @_;
      error("$file:" . line_at($text, $at) . ": $what");
    };
    my @statement;
    for my $token (tokens_of($text), [';', length $text]) {
      push(@statement, $token), next unless $token->[0] eq ';';
      check_tokens($say, @statement);
      my $all = join ' ', map { $_->[0] } @statement;
      if ($all =~ /^CREATE (?:FUNCTION|PROCEDURE)\b/i) {
        my $path = $all =~ /\bSET search_path\b/i;
        $say->($statement[0][1], 'a SECURITY DEFINER function without SET search_path') if $all =~ /\bSECURITY DEFINER\b/i && !$path;
        $say->($statement[0][1], 'a function that is neither in C nor has SET search_path or BEGIN ATOMIC')
          unless $path || $all =~ /\bLANGUAGE C\b/i || $all =~ /\bBEGIN ATOMIC\b/i;
      }
      @statement = ();
    }
  }
}

sub newest_script {
  my @newest = sort {
    my @a = split /\./, $a->[0];
    my @b = split /\./, $b->[0];
    my $order = 0;
    $order ||= ($b[$_] || 0) <=> ($a[$_] || 0) for 0 .. 2;
    $order;
  } map { m{^sql/dailyrollup--(\d+(?:\.\d+)*)\.sql$} ? [$1, $_] : () } @scripts;
  return @newest ? @{ $newest[0] } : ('none', undef);
}

sub check_versions {
  my ($control) = content('dailyrollup.control') =~ /^default_version\s*=\s*'([^']+)'/m;
  my @meta = content('META.json') =~ /^ *"version"\s*:\s*"([^"]+)"/mg;
  pop @meta;                    # of the meta-spec, which stands last
  my ($script) = newest_script();
  error("versions differ: dailyrollup.control $control, META.json @meta, newest install script $script")
    if grep { $_ ne $control } @meta, $script;
  error("CHANGELOG.md has no heading for $control")
    unless -f 'CHANGELOG.md' && content('CHANGELOG.md') =~ /^#+ *\[?v?\Q$control\E(?![.\w])/m;
}

sub check_sizes {
  for my $file (@sources) {
    my @lines = split /\n/, content($file);
    warning("$file: " . @lines . " lines, more than $max_file") if @lines > $max_file;
    my $start;
    for my $n (0 .. $#lines) {
      $start = $n if $lines[$n] =~ /^\{/;
      next unless defined $start && $lines[$n] =~ /^\}/;
      my $length = $n - $start + 1;
      warning("$file:" . ($start + 1) . ": a function of $length lines, more than $max_function")
        if $length > $max_function && $file =~ /\.c$/;
      undef $start;
    }
  }
}

sub check_promises {
  my $words = join '|', 'TO' . 'DO', 'FIX' . 'ME', 'X' x 3;
  for my $file (grep { m{^(?:src|sql|test)/} } @files) {
    my $text = content($file);
    error("$file:" . line_at($text, $-[0]) . ": $1") while $text =~ /\b($words)\b/g;
  }
}

sub check_top_level {
  my %allowed = map { $_ => 1 } @top_level;
  my %seen;
  for my $entry (grep { !$seen{$_}++ } map { m{^([^/]+)} } @files) {
    error("$entry does not belong at the top level") unless $allowed{$entry} || $entry =~ /^\./;
  }
}

# PG_FUNCTION_INFO_V1 and the symbols that the scripts name.
sub check_symbols {
  my (%in_c, %in_newest, %in_any);
  for my $file (grep { /\.c$/ } @sources) {
    my $text = without_comments_c(content($file));
    $in_c{$1} = $file while $text =~ /^\s*PG_FUNCTION_INFO_V1\s*\(\s*(\w+)\s*\)/mg;
  }
  my (undef, $newest) = newest_script();
  for my $file (@scripts) {
    my $text = without_comments_sql(content($file));
    while ($text =~ /\bAS\s+'(?:MODULE_PATHNAME|\$libdir\/dailyrollup)'\s*(?:,\s*'(\w+)')?/gi) {
      my $symbol = $1;
      # without one, it is the function's name
      ($symbol) = substr($text, 0, $-[0]) =~
        /.*\bCREATE\s+(?:FUNCTION|PROCEDURE)\s+(?:[\w"@]+\s*\.\s*)?"?(\w+)/si unless defined $symbol;
      $in_any{$symbol} = $file;
      $in_newest{$symbol} = 1 if defined $newest && $file eq $newest;
    }
  }
  for (sort keys %in_c) { error("$in_c{$_}: $_ is in no install script") unless $in_newest{$_} }
  for (sort keys %in_any) { error("$in_any{$_}: there is no C function $_") unless $in_c{$_} }
}

# An expected output that no test writes is never compared.
sub check_expected {
  for ([qr{^expected/(.+?)\.out$}, 'sql', 'sql'],
    [qr{^test/isolation/expected/(.+?)\.out$}, 'test/isolation/specs', 'spec']) {
    my ($pattern, $folder, $ext) = @$_;
    for my $file (@files) {
      next unless $file =~ $pattern;
      my $test = $1;
      my $variant = $test =~ s/_\d$//r;
      error("$file: there is no $folder/$test.$ext")
        unless -f "$folder/$test.$ext" || -f "$folder/$variant.$ext";
    }
  }
}

# Each place where a test can stop us is known to the test that kills there.
sub check_waitpoints {
  my $test = 'test/t/crash_065_steps.pl';
  my %known;
  $known{$_} = 1 for map { split } content($test) =~ /^my \@(?:places|elsewhere) = qw\((.*?)\);/msg;
  my %there;
  for my $file (grep { m{^src/.*\.c$} } @files) {
    $there{$_} = $file for without_comments_c(content($file)) =~ /\bDR_WAITPOINT(?:_IN_COMMIT)?\("([\w-]+)"\)/g;
  }
  $there{'in-commit'} = 'src/debug.c';
  for (sort keys %there) { error("$there{$_}: $test does not know the waitpoint $_") unless $known{$_} }
  for (sort keys %known) { error("$test: there is no waitpoint $_ in src/") unless $there{$_} }
}

check_layers();
check_waitpoints();
check_version_tests();
check_scripts();
check_search_path();
check_versions();
check_sizes();
check_promises();
check_top_level();
check_symbols();
check_expected();
print "lint: $errors error(s), $warnings warning(s) in " . @files . " files\n";
exit($errors ? 1 : 0);
