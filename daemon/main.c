/* main: placeholder until the program is written. */
int main(void)
{
    return 0;
}
