// The program. Everything it can do is a row in table.c.
#include "cli/command.h"

int main(int argc, char **argv)
{
    return command_main(argc, argv);
}
